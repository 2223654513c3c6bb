package nlmsg_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

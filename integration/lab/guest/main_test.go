//go:build labguest

package guest

import "testing"

func TestMain(m *testing.M) { Main(m) }

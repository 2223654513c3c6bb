package main

import "testing"

// What the API server's and etcd's metrics look like is read.
func TestFamilies(t *testing.T) {
	f, err := families([]byte("# TYPE apiserver_request_total counter\n" +
		"apiserver_request_total{code=\"200\",resource=\"fabrics\",verb=\"PATCH\"} 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	x := f["apiserver_request_total"].GetMetric()
	if len(x) != 1 || value(x[0]) != 3 || labels(x[0])["resource"] != "fabrics" {
		t.Errorf("read: %v", x)
	}
}

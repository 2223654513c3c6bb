package draw

import (
	"html/template"
	"io"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// style is that of every page: readable on a screen of any size and on paper.
const style = `body{font:15px/1.5 system-ui,sans-serif;margin:24px;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;margin:8px 0 24px}
th,td{border:1px solid #d9dee3;padding:4px 10px;text-align:left;vertical-align:top}
th{background:#f4f6f8}h1{font-size:22px}h2{font-size:17px}.down{color:#b3261e;font-weight:600}.active{color:#1b5e20}
.note{color:#555}
svg{max-width:100%;height:auto}.wide{overflow-x:auto}.wide td,.wide th{white-space:nowrap}`

var nodePage = template.Must(template.New("node").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Node.Name}}: RDMA fabrics</title><style>{{.Style}}</style></head><body>
{{.Picture}}
<h2>Ports</h2>
<div class="wide"><table><tr><th>HCA</th><th>port</th><th>interface</th><th>link</th><th>state</th><th>physical</th>
<th>rate</th><th>LID</th><th>PCI</th><th>model</th><th>firmware</th><th>kind</th><th>bond</th><th>pod</th></tr>
{{range $h := .Node.HCAs}}{{range .Ports}}<tr><td>{{$h.Name}}</td><td>{{.Number}}</td><td>{{.Netdev}}</td>
<td>{{.LinkLayer}}</td><td class="{{if .Active}}active{{else}}down{{end}}">{{.State}}</td><td>{{.Phys}}</td>
<td>{{.Rate}}</td><td>{{.LID}}</td><td>{{$h.PCI}}</td><td>{{$h.Model}}</td><td>{{$h.Firmware}}</td><td>{{$h.Kind}}</td>
<td>{{$h.Bond}}</td><td>{{$h.InPod}}</td></tr>
{{end}}{{end}}</table></div>
<h2>Fabrics</h2>
{{range .Fabrics.Fabrics}}<p><b>{{.Name}}</b>: {{.Reason}}{{if .Planes}}; the rails do not reach each other{{end}}</p>
<ul>
{{range .Rails}}<li>rail {{.Index}}: {{range .Ports}}{{.Name}} {{end}}<span class="note">({{.Reason}})</span></li>
{{end}}</ul>{{range .Warnings}}<p class="down">{{.}}</p>
{{end}}{{else}}<p>none</p>
{{end}}{{if .Fabrics.Left}}<h2>In no fabric</h2><ul>
{{range .Fabrics.Left}}<li>{{.Port.Name}}: {{.Reason}}</li>
{{end}}</ul>{{end}}</body></html>
`))

// HTML writes one page with the picture and everything in it as text.
func HTML(w io.Writer, n *node.Node, f topology.Fabrics) error {
	var picture strings.Builder
	if err := SVG(&picture, n, f); err != nil {
		return err
	}
	return nodePage.Execute(w, struct {
		Node    *node.Node
		Fabrics topology.Fabrics
		Picture template.HTML
		Style   template.CSS
	}{n, f, template.HTML(picture.String()), style})
}

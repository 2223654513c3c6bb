package doctor

import (
	"fmt"
	"strings"
)

// headings are the words of the generated pages by their language.
var headings = map[Lang]struct{ title, lead, checks, messages, end, cause, cure string }{
	English: {
		"What fabricctl doctor says",
		"Written by `go test ./internal/doctor -update`; do not edit. `fabricctl doctor host`, `doctor cluster` and " +
			"`doctor pod` print the ids below with\n" +
			"the evidence; `fabricctl doctor explain \"<log line>\"` recognises the messages of the second half, and " +
			"`fabricctl doctor explain host-mtu`\nprints what stands here. [In Chinese](doctor.zh.md).",
		"Checks", "Messages", ".", "Cause:", "Cure:",
	},
	Chinese: {
		"fabricctl doctor 的检查与消息",
		"由 `go test ./internal/doctor -update` 生成，请勿手工修改。`fabricctl doctor host`、`doctor cluster` 和 " +
			"`doctor pod` 打印下面的 id 和证据；\n" +
			"`fabricctl doctor explain \"<日志行>\"` 识别后半部分的消息，`fabricctl doctor explain host-mtu` " +
			"打印这里的内容。\n命令行加 `--lang zh`，或设置环境变量 `FABRICCTL_LANG=zh`。[English](doctor.md)",
		"检查", "消息", "。", "原因：", "处理：",
	},
}

// markdown is docs/doctor.md, or its translation: every id with its cause and cure, every message that is recognised.
func markdown(l Lang) string {
	h := headings[l]
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n## %s\n", h.title, h.lead, h.checks)
	for _, c := range Checks {
		c = l.text(c.ID)
		fmt.Fprintf(&b, "\n### %s\n\n%s%s\n\n- **%s** %s\n- **%s** %s\n",
			c.ID, c.Title, h.end, h.cause, c.Cause, h.cure, c.Cure)
	}
	fmt.Fprintf(&b, "\n## %s\n", h.messages)
	for i := range Messages {
		m, c := &Messages[i], l.text(Messages[i].ID)
		fmt.Fprintf(&b, "\n### %s\n\n%s%s\n\n```\n%s\n```\n\n- **%s** %s\n- **%s** %s\n", m.ID, c.Title, h.end,
			strings.Join(m.Examples, "\n"), h.cause, c.Cause, h.cure, c.Cure)
	}
	return b.String()
}

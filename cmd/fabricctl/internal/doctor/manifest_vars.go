package doctor

import (
	"path"
	"regexp"
	"strings"
)

// setting is the value of a variable, and where a manifest sets it.
type setting struct {
	Value string
	How   string // "", or what hands it to all ranks: "mpirun -x"
}

// maxWords bounds how much of a command is read.
const maxWords = 1 << 16

var assignment = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=(.*)$`)

// words are the words of the command of a container, also those of a text for a shell.
func (c *container) words() (out []string) {
	for _, list := range [][]string{c.Command, c.Args} {
		for _, text := range list {
			if !strings.ContainsAny(text, " \t\n") {
				out = append(out, text)
				continue
			}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(strings.TrimSpace(line), "#") {
					continue
				}
				for word := range strings.FieldsSeq(line) {
					out = append(out, strings.Trim(word, `"';&|()\`))
				}
			}
			if len(out) > maxWords {
				return out[:maxWords]
			}
		}
	}
	return out
}

// mpirun are the arguments of the mpirun that a container starts; nil: it starts none.
func (c *container) mpirun() []string {
	words := c.words()
	for i, w := range words {
		switch path.Base(w) {
		case "mpirun", "mpiexec", "orterun", "prterun":
			return words[i:]
		}
	}
	return nil
}

// mca are the parameters that a command gives to Open MPI.
func (c *container) mca() map[string]string {
	out := map[string]string{}
	words := c.mpirun()
	for i := 0; i+2 < len(words); i++ {
		switch words[i] {
		case "-mca", "--mca", "-gmca", "--gmca":
			out[words[i+1]] = words[i+2]
		}
	}
	return out
}

// vars are the variables of a container: those of its manifest, then what its command sets. What mpirun hands on
// without a value is what the container itself has.
func (c *container) vars() map[string]setting {
	out := map[string]setting{}
	for _, v := range c.Env {
		if v.Value != "" || v.From == nil {
			out[v.Name] = setting{Value: v.Value}
		}
	}
	words := c.words()
	for i, w := range words {
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		switch m := assignment.FindStringSubmatch(w); {
		case before == "-x" && m != nil:
			out[m[1]] = setting{strings.Trim(m[2], `"'`), "mpirun -x"}
		case before == "-x":
			if v, ok := out[w]; ok {
				v.How = "mpirun -x"
				out[w] = v
			} else if w != "" {
				out[w] = setting{How: "mpirun -x"}
			}
		case (before == "-genv" || before == "-env") && i+1 < len(words):
			out[w] = setting{words[i+1], "mpirun " + before}
		case m != nil:
			out[m[1]] = setting{Value: strings.Trim(m[2], `"'`)}
		}
	}
	return out
}

// assign is how a variable is set, for people.
func (s setting) assign(name string) string {
	if s.How == "" {
		return name + "=" + s.Value
	}
	if s.Value == "" {
		return s.How + " " + name
	}
	return s.How + " " + name + "=" + s.Value
}

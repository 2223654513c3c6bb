package doctor

import "regexp"

// released matches the versions of releases: docs/releasing.md.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Released says whether a version is that of a release.
func Released(version string) bool { return released.MatchString(version) }

// edition is the directory of the site (make site) whose pages findings name.
var edition = "main"

// SetVersion makes findings name the pages of this version of the program, if it is a release. It is called once, and
// before there is a finding.
func SetVersion(version string) {
	if Released(version) {
		edition = version
	}
}

// page is the address of the section about an id.
func page(id string) string {
	return "https://fabric-cni.github.io/fabric-cni/" + edition + "/doctor.html#" + id
}

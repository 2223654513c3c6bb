// Package guest is what tests inside a lab guest share: a simulated fabric, pods' network namespaces, CNI plugins run
// with faults, and the state of the whole host as a value that can be compared.
//
// Everything here changes the kernel it runs on. It belongs in a guest of package lab only; the tests beside it have
// the build tag labguest and refuse to run elsewhere.
package guest

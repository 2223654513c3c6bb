// Package lab boots prepared Linux kernels in QEMU with simulated InfiniBand hardware and runs programs in them.
//
// A guest sees this machine's / read-only under a RAM overlay, so a binary built here runs there unchanged, and a
// writable directory for results. Kernels are prepared by scripts/lab-setup.sh. See the README beside this file.
package lab

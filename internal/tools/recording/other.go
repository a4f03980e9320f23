//go:build !linux

// Command recording runs on Linux only.
package main

func main() { panic("recording needs Linux: it gives processes host names of their own") }

// Package browser tests the inspector in a real browser, Chromium. It checks that open pages
// update themselves, and that they can be used on a phone, with the keyboard alone and without
// JavaScript. It also checks that they do not make the browser do anything unwanted.
//
// It also takes the pictures of the inspector in docs: go test -run Pictures -update .
package browser

// Package browser tests the inspector in a real browser, Chromium: that pages change while one
// looks at them, that they can be used on a phone, with the keyboard alone and without JavaScript,
// and that they make the browser do nothing that they should not.
//
// It also takes the pictures of the inspector in docs: go test -run Pictures -update .
package browser

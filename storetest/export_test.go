package storetest

import "strings"

// Names returns the names of all tests of the suite, as "topic/sentence".
func Names() []string {
	names := []string{capabilitiesTest}
	for _, topic := range topics {
		for _, test := range topic.tests {
			names = append(names, topic.name+"/"+test.name)
		}
	}
	return names
}

// LogName returns a test's name as the testing package writes it.
func LogName(name string) string { return strings.ReplaceAll(name, " ", "_") }

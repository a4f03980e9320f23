package cli

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// longest is more than any time that makes sense here, and far from an overflow.
const longest = 10 * 365 * 24 * time.Hour

// ParseDuration reads 90s, 1h30m, and plain seconds with an optional fraction, which is
// what flock(1) and sleep(1) take.
func ParseDuration(s string) (time.Duration, error) {
	var d time.Duration
	if strings.Trim(s, "0123456789.") == "" && s != "" {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, usagef("want a time such as 30s, 1m30s, or seconds such as 1.5")
		}
		if seconds > longest.Seconds() {
			return 0, usagef("want at most %s", longest)
		}
		d = time.Duration(math.Round(seconds * float64(time.Second)))
	} else {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			return 0, usagef("want a time such as 30s, 1m30s, or seconds such as 1.5")
		}
	}
	switch {
	case d < 0:
		return 0, usagef("want no negative time")
	case d > longest:
		return 0, usagef("want at most %s", longest)
	}
	return d, nil
}

// Duration returns a flag whose value is a time; see ParseDuration. Given tells whether it
// was given, and may be nil.
func Duration(long string, short byte, to *time.Duration, given *bool, help string) *Flag {
	return Func(long, short, "DUR", func(s string) error {
		d, err := ParseDuration(s)
		if err != nil {
			return err
		}
		*to = d
		if given != nil {
			*given = true
		}
		return nil
	}, help)
}

// Int returns a flag whose value is a number from least to most.
func Int(long string, short byte, value string, to *int, given *bool, least, most int, help string) *Flag {
	return Func(long, short, value, func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return usagef("want a number from %d to %d", least, most)
		}
		*to = n
		if given != nil {
			*given = true
		}
		return nil
	}, help)
}

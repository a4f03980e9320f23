package store

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A URL identifies a store. Unlike url.URL it may have several hosts, and its formatted text
// never contains the password, whatever the verb or encoder.
type URL struct {
	Scheme string     // such as "redis" or "quorum+redis", in lower case
	User   string     // decoded
	Hosts  []string   // each "host" or "host:port", in the given order; none in "sqlite:PATH"
	Path   string     // decoded; the part after the hosts, or after the colon
	Query  url.Values // parameters

	password, raw func() string // functions, because fmt prints the contents of any other type; may be nil
}

// ParseURL parses SCHEME:PATH or SCHEME://[USER[:PASSWORD]@]HOST[,HOST…][/PATH], each with
// an optional ?KEY=VALUE&…. Its errors match ErrInvalid and contain no password.
func ParseURL(s string) (*URL, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !validScheme(scheme) {
		return nil, fmt.Errorf(`%w: store URL: want SCHEME:…, such as "redis://127.0.0.1:6379" or "sqlite:/var/lib/locks.db"`, ErrInvalid)
	}
	u := &URL{Scheme: strings.ToLower(scheme), raw: hide(s)}
	fail := func(what string) error {
		// Show only the scheme: in a malformed URL it is not certain where the password ends.
		return fmt.Errorf("%w: %s URL: %s", ErrInvalid, u.Scheme, what)
	}
	if strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, fail("contains a control character; remove it")
	}
	rest, query, _ := strings.Cut(rest, "?")
	var err error
	const encode = "percent-encode special characters in a user or password: @ as %40, / as %2F, ? as %3F, % as %25"
	if u.Query, err = url.ParseQuery(query); err != nil {
		return nil, fail("malformed parameters after the question mark; write ?key=value&key=value and percent-encode special characters")
	}
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		hosts, _, _ := strings.Cut(authority, "/")
		rest = authority[len(hosts):]
		if strings.Contains(rest, "@") || strings.Contains(query, "@") {
			return nil, fail("an @ after the hosts; " + encode) // most likely part of an unencoded password
		}
		if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
			user, password, _ := strings.Cut(hosts[:i], ":")
			if u.User, err = url.PathUnescape(user); err == nil {
				password, err = url.PathUnescape(password)
				u.password = hide(password)
			}
			if err != nil {
				return nil, fail("malformed user or password; " + encode)
			}
			hosts = hosts[i+1:]
		}
		if hosts != "" {
			u.Hosts = strings.Split(hosts, ",")
		}
		for _, host := range u.Hosts {
			if !validHost(host) {
				return nil, fail("malformed host; write HOST:PORT, separate several with commas, and " + encode)
			}
		}
	}
	if u.Path, err = url.PathUnescape(rest); err != nil {
		return nil, fail("malformed path; write a percent sign as %25")
	}
	return u, nil
}

func validScheme(s string) bool {
	for i, r := range s {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || !('0' <= r && r <= '9' || r == '+' || r == '-' || r == '.')) {
			return false
		}
	}
	return s != ""
}

// validHost accepts HOST, HOST:PORT and IPv6 addresses in brackets.
func validHost(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && strings.Trim(inner, "0123456789abcdefABCDEF:.") == ""
	}
	return host != "" && !strings.ContainsAny(host, " \"'<>\\^`{|}%#:[]")
}

// Only returns an error that matches ErrInvalid if the URL has a parameter that is not in
// params, or has a parameter more than once. The error lists the known parameters.
func (u *URL) Only(params ...string) error {
	for _, key := range slices.Sorted(maps.Keys(u.Query)) {
		if !slices.Contains(params, key) {
			known := "it takes none"
			if len(params) > 0 {
				known = "known are " + strings.Join(params, ", ")
			}
			return fmt.Errorf("%w: %s URL: unknown parameter %.40q: %s", ErrInvalid, u.Scheme, key, known)
		}
		if n := len(u.Query[key]); n > 1 {
			return fmt.Errorf("%w: %s URL: parameter %q is given %d times", ErrInvalid, u.Scheme, key, n)
		}
	}
	return nil
}

// Addresses returns the hosts as HOST:PORT, with the given port for hosts that have none. It
// returns an error that matches ErrInvalid if there is no host.
func (u *URL) Addresses(port string) (addrs []string, err error) {
	for _, host := range u.Hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		addrs = append(addrs, host)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: %s URL: no host: write %[2]s://HOST:%s, several with commas between them", ErrInvalid, u.Scheme, port)
	}
	return addrs, nil
}

// Password returns the password, decoded.
func (u URL) Password() string { return show(u.password) }

// Raw returns the URL as given, with the password, for a client library that parses it itself.
func (u URL) Raw() string { return show(u.raw) }

func hide(text string) func() string { return func() string { return text } }

func show(hidden func() string) string {
	if hidden == nil {
		return ""
	}
	return hidden()
}

// GoString returns the result of String, for the verb %#v.
func (u URL) GoString() string { return u.String() }

// MarshalText implements encoding.TextMarshaler with the result of String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// String returns the URL without its password and parameters, for logs and errors. It does not
// show a path with an @ either: somebody who forgets the slashes writes USER:PASSWORD@HOST there.
func (u URL) String() string {
	var b strings.Builder
	b.WriteString(u.Scheme + ":")
	if len(u.Hosts) > 0 || u.User != "" || u.Password() != "" || strings.HasPrefix(u.Path, "//") {
		b.WriteString("//")
		if u.User != "" || u.Password() != "" {
			if u.Password() != "" {
				b.WriteString(url.PathEscape(u.User) + ":")
			}
			b.WriteString("***@") // a user without a password may be a password whose colon was forgotten
		}
		b.WriteString(strings.Join(u.Hosts, ","))
	}
	switch {
	case !strings.Contains(u.Path, "@"):
		b.WriteString((&url.URL{Path: u.Path}).EscapedPath())
	case strings.HasPrefix(u.Path, "/"):
		b.WriteString("/***")
	default:
		b.WriteString("***")
	}
	return b.String()
}

package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

func TestParseURLReadsEveryForm(t *testing.T) {
	for _, test := range []struct {
		url  string
		want store.URL
	}{
		{"memory:", store.URL{Scheme: "memory"}},
		{"sqlite:/var/lib/a%20b.db", store.URL{Scheme: "sqlite", Path: "/var/lib/a b.db"}},
		{"sqlite:relative#1.db", store.URL{Scheme: "sqlite", Path: "relative#1.db"}},
		{"redis://127.0.0.1:6379/2", store.URL{Scheme: "redis", Hosts: []string{"127.0.0.1:6379"}, Path: "/2"}},
		{"REDIS://u:p%40ss@h", store.URL{Scheme: "redis", User: "u", Hosts: []string{"h"}}},
		{"redis+sentinel://a:1,b:2/master/3", store.URL{Scheme: "redis+sentinel", Hosts: []string{"a:1", "b:2"}, Path: "/master/3"}},
		{"etcd://[::1]:2379,[fe80::1]", store.URL{Scheme: "etcd", Hosts: []string{"[::1]:2379", "[fe80::1]"}}},
		{"redis://:only%2Fpassword@h:1", store.URL{Scheme: "redis", Hosts: []string{"h:1"}}},
	} {
		u, err := store.ParseURL(test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		if u.Raw() != test.url {
			t.Errorf("Raw is %q", u.Raw())
		}
		got := store.URL{Scheme: u.Scheme, User: u.User, Hosts: u.Hosts, Path: u.Path}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s is %+v, want %+v", test.url, got, test.want)
		}
	}
}

func TestAPasswordWithoutItsColonIsNotShown(t *testing.T) {
	u, err := store.ParseURL("redis://s3cret@h/0")
	if err != nil || u.String() != "redis://***@h/0" {
		t.Errorf("%v, %v", u, err)
	}
}

func TestAPasswordInThePathIsNotShown(t *testing.T) {
	for url, want := range map[string]string{
		"redis:u:s3cret@h:6379":  "redis:***",
		"redis:/u:s3cret@h/0":    "redis:/***",
		"mysql:u:s3cret@tcp(h)/": "mysql:***",
		"x://h/a%40b":            "x://h/***",
		"sqlite:/var/lib/a.db":   "sqlite:/var/lib/a.db",
	} {
		if u, err := store.ParseURL(url); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v, want %s", url, u, err, want)
		}
	}
}

func TestNoWayOfPrintingShowsThePassword(t *testing.T) {
	u, err := store.ParseURL("redis://u:s3cret@h/0?password=s3cret")
	if err != nil || u.Password() != "s3cret" || u.Raw() != "redis://u:s3cret@h/0?password=s3cret" {
		t.Fatalf("%v, %v", u, err)
	}
	u.Query = nil // the caller may print parameters
	type holder struct {
		Public  store.URL
		private store.URL
		pointer *store.URL
	}
	for _, v := range []any{u, *u, holder{*u, *u, u}, &holder{*u, *u, u}, []store.URL{*u}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, "s3cret") {
				t.Errorf("%s of %T shows it: %s", format, v, text)
			}
		}
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "s3cret") {
			t.Errorf("JSON of %T: %s, %v", v, text, err)
		}
	}
	if (store.URL{}).Password() != "" || (store.URL{}).Raw() != "" {
		t.Error("the zero URL has a password")
	}
}

// People forget to percent-encode. The part that they meant as a password must not appear in an
// error.
func TestParseURLRefusesAPasswordThatIsCutInTwo(t *testing.T) {
	for _, special := range []string{"/", "?", "/1", "?1"} {
		for _, url := range []string{"redis://u:12345" + special + "67890@h:1/0", "redis://u:secret" + special + "67890@h"} {
			u, err := store.ParseURL(url)
			if err == nil {
				t.Errorf("%s is read as %s", url, u)
				continue
			}
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "%40") {
				t.Errorf("%s: %v", url, err)
			}
			for _, part := range []string{"12345", "67890", "secret"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error shows %s: %v", url, part, err)
				}
			}
		}
	}
}

func TestOnlyListsWhatIsAllowed(t *testing.T) {
	u, err := store.ParseURL("x:?a=1&b=2&b=3")
	if err != nil {
		t.Fatal(err)
	}
	for want, allowed := range map[string][]string{
		`unknown parameter "`:                   nil,
		`unknown parameter "a": known are b`:    {"b"},
		`parameter "b" is given 2 times`:        {"a", "b"},
		`unknown parameter "b": known are a, c`: {"a", "c"},
	} {
		err := u.Only(allowed...)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Only(%q): %v, want %s", allowed, err, want)
		}
	}
}

func TestOpenKnowsWhatWasRegistered(t *testing.T) {
	store.Register("registered", func(_ context.Context, u *store.URL) (store.Store, error) {
		return nil, errors.New("opened " + u.Path)
	})
	if _, err := store.Open(t.Context(), "registered:x"); err == nil || err.Error() != "opened x" {
		t.Errorf("Open: %v", err)
	}
	_, err := store.Open(t.Context(), "other:x")
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "registered") {
		t.Errorf("Open of an unknown scheme: %v", err)
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{"memory:", "redis://u:p@h:1,h:2/0?a=b", "a://@", "a://[::1]:2", "a:%41", "a://u:%2F@h?x", "a:u:p@h", "a://u@h", "a:/u:p@h", "a://h/%40", "a:////@"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := store.ParseURL(s)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		// The printed URL can be parsed again, and contains no password.
		printed := u.String()
		again, err := store.ParseURL(printed)
		if err != nil {
			t.Fatalf("%q prints as %q, which is refused: %v", s, printed, err)
		}
		if u.Password() != "" && again.Password() != "***" {
			t.Fatalf("%q prints as %q with the password %q", s, printed, again.Password())
		}
		user, path := u.User, u.Path
		if user != "" && u.Password() == "" {
			user = "***"
		}
		if strings.Contains(path, "@") {
			if path = "***"; strings.HasPrefix(u.Path, "/") {
				path = "/***"
			}
		}
		if again.Scheme != u.Scheme || again.User != user || again.Path != path || !reflect.DeepEqual(again.Hosts, u.Hosts) {
			t.Fatalf("%q prints as %q, which reads as %+v", s, printed, again)
		}
	})
}

func TestAddressesHaveAPort(t *testing.T) {
	u, err := store.ParseURL("x://a:1,b,[::1]/p")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := u.Addresses("7"); err != nil || !slices.Equal(got, []string{"a:1", "b:7", "[::1]:7"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := new(store.URL).Addresses("7"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without a host: %v, want ErrInvalid", err)
	}
}

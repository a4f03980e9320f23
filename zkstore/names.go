package zkstore

import (
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// buckets is over how many nodes the names are spread, so that a listing can read a part of
// them at a time.
const buckets = 64

const hexDigits = "0123456789abcdef"

// place returns the parent of a name's requests and the bucket that it is in.
func (s *Store) place(name string) (parent, bucket string) {
	h := uint32(2166136261) // FNV-1a, which must never change
	for i := 0; i < len(name); i++ {
		h = (h ^ uint32(name[i])) * 16777619
	}
	h %= buckets
	bucket = s.root + "/" + hexDigits[h>>4:h>>4+1] + hexDigits[h&15:h&15+1] // as %02x
	return bucket + "/" + encode(name), bucket
}

// encode makes any name the name of a node. What ZooKeeper forbids or reads specially is
// written as a percent sign and two digits for each byte; so different names stay different.
func encode(name string) string {
	plain := true
	for i := 0; i < len(name); i++ {
		plain = plain && isPlain(name, i)
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c := name[i]; isPlain(name, i) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

func isPlain(name string, i int) bool {
	c := name[i]
	return c > ' ' && c < 0x7f && c != '/' && c != '%' && (c != '.' || i > 0)
}

// decode is the reverse of encode.
func decode(node string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(node); i++ {
		if node[i] != '%' {
			b.WriteByte(node[i])
			continue
		}
		if i+2 >= len(node) {
			return "", false
		}
		c, err := strconv.ParseUint(node[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	name = b.String()
	return name, encode(name) == node
}

// A node is one child of a name: a request, a grant, or what a release kept. What it asks for
// is in its own name, so that reading the children tells most of what there is to know:
//
//	x1.0-ID-0000000007    exclusive (s shared, p permits), weight and limit, identity, number
//	X1.0-ID-0000000007    the same, of an attempt that does not wait
//	kx1.0-ID-0000000007   kept by a release, for a time
//	done                  kept as done
type node struct {
	name          string
	id            store.ID
	mode          store.Mode
	weight, limit int
	seq           int32
	try           bool
	kept          bool
	done          bool
	rec           *record // of kept ones
}

// doneNode is where a name is closed as done. There is one at most, and it is in front.
const doneNode = "done"

// firstSeq is the number of a node that was made together with its parent. The numbers that
// the server gives are higher.
const firstSeq = "0000000000"

var modeLetters = map[store.Mode]string{store.Exclusive: "x", store.Shared: "s", store.Permits: "p"}

// requestNode is the name of a request's node without its number.
func requestNode(req *store.Request) string {
	letter := modeLetters[req.Mode]
	if !req.Queue {
		letter = strings.ToUpper(letter)
	}
	return letter + strconv.Itoa(req.Weight) + "." + strconv.Itoa(req.Limit) + "-" + req.ID.String() + "-"
}

// parseNode reads the name of a child. Others than ours are not ok.
func parseNode(name string) (n node, ok bool) {
	n.name = name
	if name == doneNode {
		n.kept, n.done, n.mode, n.weight = true, true, store.Exclusive, 1
		return n, true
	}
	rest, kept := strings.CutPrefix(name, "k")
	n.kept = kept
	what, rest, _ := strings.Cut(rest, "-")
	id, seq, _ := strings.Cut(rest, "-") // the number itself may be negative
	if len(what) < 4 {
		return n, false
	}
	lower := strings.ToLower(what[:1])
	n.try = lower != what[:1]
	for mode, letter := range modeLetters {
		if letter == lower {
			n.mode = mode
		}
	}
	weight, limit, _ := strings.Cut(what[1:], ".")
	var err [4]error
	n.weight, err[0] = strconv.Atoi(weight)
	n.limit, err[1] = strconv.Atoi(limit)
	n.id, err[2] = store.ParseID(id)
	number, failed := strconv.ParseInt(seq, 10, 32)
	n.seq, err[3] = int32(number), failed
	return n, n.mode != 0 && err == [4]error{}
}

// before is the order of arrival. The server's numbers start again below zero after 2^31.
func before(a, b *node) int {
	switch {
	case a.done != b.done && a.done:
		return -1
	case a.done != b.done:
		return 1
	}
	return int(a.seq - b.seq)
}

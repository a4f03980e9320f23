package zkstore

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

const buckets = 64 // nodes over which the names are spread, so that a listing can read a part of them

// place returns the parent of a name's requests and the bucket that contains it.
func (s *Store) place(name string) (parent, bucket string) {
	h := fnv.New32a() // this choice must never change
	_, _ = h.Write([]byte(name))
	bucket = fmt.Sprintf("%s/%02x", s.root, h.Sum32()%buckets)
	return bucket + "/" + encode(name), bucket
}

// encode returns the node of a name. ZooKeeper does not allow slashes and control characters in the name
// of a node, nor the names "." and "..".
func encode(name string) string {
	node := url.PathEscape(name)
	if strings.HasPrefix(node, ".") {
		return "%2E" + node[1:]
	}
	return node
}

// decode is the reverse of encode.
func decode(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && encode(name) == node
}

// A node is one child of a name. Its name contains the parameters of the request, so that a list of the
// children is usually enough:
//
//	x1.0-ID-0000000007    exclusive (s shared, p permits), weight and limit, identity, number
//	X1.0-ID-0000000007    the same, of an attempt that does not wait
//	kx1.0-ID-0000000007   kept by a release, for a time
type node struct {
	name          string
	id            store.ID
	mode          store.Mode
	weight, limit int
	seq           int32
	try           bool
	kept          bool
	rec           *record // of a kept record
}

const (
	firstSeq    = "0000000000" // number of a node that is created together with its parent; numbers of the server are higher
	modeLetters = "xsp"        // letters of the modes, in order
)

// requestNode returns the name of a request's node without its number.
func requestNode(req *store.Request) string {
	letter := modeLetters[req.Mode-1 : req.Mode]
	if !req.Queue {
		letter = strings.ToUpper(letter)
	}
	return letter + strconv.Itoa(req.Weight) + "." + strconv.Itoa(req.Limit) + "-" + req.ID.String() + "-"
}

// parseNode parses the name of a child. It is not ok if this version did not create it.
func parseNode(name string) (n node, ok bool) {
	n.name = name
	rest, kept := strings.CutPrefix(name, "k")
	parts := strings.SplitN(rest, "-", 3) // the number may be negative
	if len(parts) < 3 || len(parts[0]) < 4 {
		return n, false
	}
	letter := strings.ToLower(parts[0][:1])
	weight, limit, _ := strings.Cut(parts[0][1:], ".")
	n.mode, n.try, n.kept = store.Mode(strings.Index(modeLetters, letter)+1), letter != parts[0][:1], kept
	var err [4]error
	n.weight, err[0] = strconv.Atoi(weight)
	n.limit, err[1] = strconv.Atoi(limit)
	n.id, err[2] = store.ParseID(parts[1])
	seq, failed := strconv.ParseInt(parts[2], 10, 32)
	n.seq, err[3] = int32(seq), failed
	return n, n.mode != 0 && err == [4]error{}
}

// arrival orders the queue. After 2^31 nodes the server's numbers continue with negative ones.
func arrival(a, b node) int { return int(a.seq - b.seq) }

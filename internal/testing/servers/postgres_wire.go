package servers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// queryPostgres logs in as the superuser, who needs no password, and runs statements with the simple query
// protocol. It uses no client library, because this module has no requirements.
func queryPostgres(addr, sql string) (rows [][]string, err error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(postgresTimeout))
	const protocol = 3 << 16
	startup := binary.BigEndian.AppendUint32(nil, protocol)
	startup = append(startup, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if err := writeMessage(conn, 0, startup); err != nil {
		return nil, err
	}
	if _, err := readUntilReady(conn); err != nil {
		return nil, err
	}
	if err := writeMessage(conn, 'Q', append([]byte(sql), 0)); err != nil {
		return nil, err
	}
	rows, err = readUntilReady(conn)
	writeMessage(conn, 'X', nil)
	return rows, err
}

func writeMessage(w io.Writer, kind byte, body []byte) error {
	var message []byte
	if kind != 0 {
		message = append(message, kind)
	}
	message = binary.BigEndian.AppendUint32(message, uint32(len(body)+4))
	_, err := w.Write(append(message, body...))
	return err
}

// readUntilReady reads the reply up to the point where the server waits for the next statement.
func readUntilReady(r io.Reader) (rows [][]string, err error) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		switch head[0] {
		case 'R': // authentication
			if method := binary.BigEndian.Uint32(body); method != 0 {
				return nil, fmt.Errorf("the server wants authentication %d", method)
			}
		case 'E':
			err = errors.New(errorText(body))
			if bytes.HasPrefix(body, []byte("SFATAL\x00")) {
				return nil, err // nothing follows
			}
		case 'T': // another result begins
			rows = nil
		case 'D':
			rows = append(rows, rowValues(body))
		case 'Z':
			return rows, err
		}
	}
}

// rowValues returns the columns of a row; NULL is empty.
func rowValues(body []byte) []string {
	values := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range values {
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size > 0 {
			values[i] = string(body[:size])
			body = body[size:]
		}
	}
	return values
}

// errorText returns the code and message of an error.
func errorText(body []byte) (text string) {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) > 0 && (field[0] == 'C' || field[0] == 'M') {
			text += " " + string(field[1:])
		}
	}
	return "postgres:" + text
}

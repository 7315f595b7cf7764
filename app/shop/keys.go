package shop

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// Purpose says what a link lets its bearer do. A token of one purpose is no token of another.
type Purpose string

const (
	Reserve     Purpose = "reserve"     // /r: one entry and one restock, named by an offer
	Unsubscribe Purpose = "unsubscribe" // /u: one contact of one shop
	Place       Purpose = "place"       // /q: one entry
	HoldMark    Purpose = "hold"        // no link: names a hold on its draft order and order
)

// ErrToken means that a link is not one of ours: guessed, edited, cut short or meant for something else.
var ErrToken = errors.New("this link is not valid")

// ErrSealed means that sealed bytes could not be opened: none of the keys fits, or they were changed.
var ErrSealed = errors.New("sealed with a key that is no longer configured, or damaged")

// TokenLength is the number of characters of every link token: 1 byte of key id, 7 of row id and 10 of
// MAC (80 bits), in unpadded base64url. A text message has room for no more.
const TokenLength = 24

// MaxTokenID is the largest row id that a token can carry.
const MaxTokenID = 1<<56 - 1

// Keys is the list of master keys, ready for use. It is safe for use by many goroutines.
type Keys struct {
	keys []masterKey // the first one signs
}

type masterKey struct {
	id     byte // in every token, so that its key is found at once
	master []byte
}

// NewKeys takes the master keys, newest first. Each must have 32 bytes, and no two of them may share
// the one-byte id that is derived from them (1 in 256 do: take another).
func NewKeys(masters ...[]byte) (*Keys, error) {
	if len(masters) == 0 {
		return nil, errors.New("at least one key is needed")
	}
	k := &Keys{}
	for i, m := range masters {
		if len(m) != 32 {
			return nil, fmt.Errorf("key %d has %d bytes, 32 are needed", i+1, len(m))
		}
		id := derive(m, "key id")[0]
		for j, other := range k.keys {
			if other.id == id {
				return nil, fmt.Errorf("keys %d and %d cannot be told apart in a link: make another key %d", j+1, i+1, i+1)
			}
		}
		k.keys = append(k.keys, masterKey{id, append([]byte(nil), m...)})
	}
	return k, nil
}

func derive(master []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, master, nil, "holdfast "+purpose, 32)
	if err != nil {
		panic(err) // only for a length that SHA-256 cannot give
	}
	return key
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Token signs a row id for one purpose. The same id gives the same token as long as the keys stay.
// It panics for an id that is not between 1 and MaxTokenID: such a row does not exist.
func (k *Keys) Token(p Purpose, id int64) string {
	if id < 1 || id > MaxTokenID {
		panic(fmt.Sprintf("no token for row %d", id))
	}
	return k.keys[0].token(p, id)
}

func (m masterKey) token(p Purpose, id int64) string {
	raw := make([]byte, 8, 18)
	binary.BigEndian.PutUint64(raw, uint64(id))
	raw[0] = m.id
	raw = append(raw, mac(derive(m.master, "link "+string(p)), raw)[:10]...)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// ParseToken returns the row id of a token, or ErrToken. It compares in constant time and says nothing
// about what was wrong.
func (k *Keys) ParseToken(p Purpose, token string) (int64, error) {
	if len(token) != TokenLength {
		return 0, ErrToken
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return 0, ErrToken
	}
	for _, m := range k.keys {
		if m.id != raw[0] {
			continue
		}
		id := int64(binary.BigEndian.Uint64(append([]byte{0}, raw[1:8]...)))
		if id < 1 || !hmac.Equal([]byte(m.token(p, id)), []byte(token)) {
			return 0, ErrToken
		}
		return id, nil
	}
	return 0, ErrToken
}

// Derived are keys of 32 bytes for something of another package that signs, one for each configured key,
// the first key's first. Another purpose has other keys;
func (k *Keys) Derived(purpose string) [][]byte {
	all := make([][]byte, len(k.keys))
	for i, m := range k.keys {
		all[i] = derive(m.master, "derived "+purpose)
	}
	return all
}

// Hash is a keyed hash of something that must be recognised again but not kept: a contact, a client
// address. kind keeps hashes of different things apart. It is made with the first key.
func (k *Keys) Hash(shopID int64, kind, value string) []byte {
	return k.keys[0].hash(shopID, kind, value)
}

// Hashes are the hashes of one value by every configured key, the first key's first: what was kept
// before a key was changed is found by one of the others.
func (k *Keys) Hashes(shopID int64, kind, value string) [][]byte {
	all := make([][]byte, len(k.keys))
	for i, m := range k.keys {
		all[i] = m.hash(shopID, kind, value)
	}
	return all
}

func (m masterKey) hash(shopID int64, kind, value string) []byte {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], uint64(shopID))
	return mac(derive(m.master, "hash "+kind), id[:], []byte(value))
}

// Seal encrypts a secret of one shop (AES-256-GCM). what names the secret; a sealed secret opens only
// for the shop and the name it was sealed for.
func (k *Keys) Seal(shopID int64, what string, secret []byte) []byte {
	nonce := make([]byte, 12)
	rand.Read(nonce)
	m := k.keys[0]
	return m.gcm().Seal(append([]byte{m.id}, nonce...), nonce, secret, sealedFor(shopID, what))
}

// Open decrypts what Seal made, with whichever configured key it was sealed with, or returns ErrSealed.
func (k *Keys) Open(shopID int64, what string, sealed []byte) ([]byte, error) {
	if len(sealed) < 13 {
		return nil, ErrSealed
	}
	for _, m := range k.keys {
		if m.id == sealed[0] {
			secret, err := m.gcm().Open(nil, sealed[1:13], sealed[13:], sealedFor(shopID, what))
			if err != nil {
				return nil, ErrSealed
			}
			return secret, nil
		}
	}
	return nil, ErrSealed
}

func (m masterKey) gcm() cipher.AEAD {
	block, err := aes.NewCipher(derive(m.master, "seal"))
	if err != nil {
		panic(err) // only for a key of another length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func sealedFor(shopID int64, what string) []byte {
	return fmt.Appendf(nil, "%d %s", shopID, what)
}

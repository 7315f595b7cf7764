// Package shop knows the tenant: which shop it is, what its merchant has set, and the secrets that
// belong to it.
//
// Secrets are derived from one list of master keys (HOLDFAST_KEYS), one derived key per purpose, so
// that a link can never be taken for a hash and a hash never for a seal. The first key of the list
// signs, hashes and seals; all of them verify, find and open, which is how a key is changed without
// downtime.
package shop

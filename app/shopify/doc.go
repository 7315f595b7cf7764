// Package shopify is the seam to Shopify: everything that is sent to it and everything that claims to
// come from it passes here.
//
//	Client    the domain's port waitlist.Shopify over the GraphQL Admin API: variants.go, drafts.go, catalogue.go
//	          call.go      one call: shop, token, budget, transport, error
//	          transport.go what Shopify really answered, read before go-shopify sees it
//	          budget.go    the points that a shop has left, and who may take them
//	          auth.go      how a shop installs the app, and what it grants
//	          tokens.go    access tokens that are good now, renewed by one process at a time
//	          graphql/     every document that is ever sent, checked against Shopify's schema by a test
//	Verifier  what comes in: webhooks and app proxy requests (verify.go), ID tokens (idtoken.go)
//
// go-shopify is the client underneath, behind guards that v4.7.0 needs: it takes any host for a shop
// ("evil.com/x.myshopify.com"), is not safe for concurrent use, sleeps through cancelled contexts when
// it retries, drops the code and cost of an error, reads bodies without a bound, follows redirects with
// the token in hand and accepts an empty secret. So a domain is checked before it is used, each call has
// a client of its own that never retries, our transport reads the answer first and hands go-shopify the
// data alone, and an empty secret is refused when the program starts.
//
// An access token leaves this package in one header, to one host; tokens and the client secret are sent
// to a shop's token endpoint and nowhere else. No error and no log line holds one.
package shopify

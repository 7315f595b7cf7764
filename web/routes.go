package web

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

const kB = 1 << 10

// routes is every route of the public listener. Merchants' themes, Shopify, Twilio and the messages in
// people's inboxes know these names.
func (s *server) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(s.identify, s.logRequests, s.recoverPanics, s.secure, middleware.GetHead)
	r.NotFound(s.shopper(func(http.ResponseWriter, *http.Request) error { return errNoPage }))

	r.Group(func(r chi.Router) { // the storefront, signed by Shopify's app proxy
		r.Use(limitBody(16*kB), noStore)
		r.Post("/proxy/waitlist", s.storefront(s.tap))
		r.Get("/proxy/waitlist", s.storefront(s.waitable))
		r.Post("/proxy/waitlist/code", s.storefront(notBuilt("confirming a phone by a code")))
	})

	r.Group(func(r chi.Router) { // the shopper: the token is the credential
		r.Use(limitBody(8*kB), noStore, noReferrer)
		r.Get("/r/{token}", s.shopper(s.reserve))
		r.Post("/r/{token}", s.shopper(s.press))
		r.Get("/r/{token}/status", s.asJSON(s.reserveStatus))
		r.Post("/r/{token}/pass", s.shopper(s.pass))
		r.Get("/u/{token}", s.shopper(s.unsubscribePage))
		r.Post("/u/{token}", s.shopper(s.unsubscribe))
		r.Get("/q/{token}", s.shopper(s.place))
		r.Post("/q/{token}", s.shopper(s.leave))
		r.Get("/c/{token}", s.shopper(notBuilt("confirming an address")))
		r.Post("/c/{token}", s.shopper(notBuilt("confirming an address")))
	})

	r.Group(func(r chi.Router) { // Shopify, Twilio and the mail provider: signed
		r.Post("/webhooks/shopify", s.asJSON(s.shopifyWebhook)) // reads at most shopify.MaxWebhook
		r.With(limitBody(64*kB)).Post("/webhooks/twilio/{key}/inbound", s.asJSON(s.inboundText))
		r.With(limitBody(64*kB)).Post("/webhooks/twilio/{key}/status", s.asJSON(s.textStatus))
		r.With(limitBody(512*kB)).Post("/webhooks/email/{key}", s.asJSON(s.mailReport))
	})

	r.Group(func(r chi.Router) { // the merchant, embedded in the Shopify admin: an ID token on every request
		r.Use(limitBody(64*kB), noStore, s.sameOrigin)
		r.Get("/", s.merchant(s.home))
		r.Post("/notes/{id}/put-away", s.merchant(s.putAway))
		r.Get("/waitlists", s.merchant(s.waitlists))
		r.Get("/waitlists/{variant}", s.merchant(s.waitlist))
		r.Post("/waitlists/{variant}/entries/{id}/remove", s.merchant(s.removeEntry))
		r.Get("/restocks", s.merchant(s.restocks))
		r.Get("/restocks/{id}", s.merchant(s.restock))
		r.Post("/restocks/{id}/approve", s.merchant(s.approve))
		r.Post("/restocks/{id}/decline", s.merchant(s.decline))
		r.Get("/holds", s.merchant(s.holds))
		r.Post("/holds/{id}/release", s.merchant(s.releaseHold))
		r.Get("/opt-outs", s.merchant(s.optOuts))
		r.Post("/opt-outs", s.merchant(s.addOptOut))
		r.Post("/opt-outs/{id}/lift", s.merchant(s.liftOptOut))
		r.Get("/messages", s.merchant(s.messages))
		r.Get("/settings", s.merchant(s.settings))
		r.Post("/settings", s.merchant(s.saveSettings))
		r.Get("/settings/messages", s.merchant(s.wording))
		r.Post("/settings/messages", s.merchant(s.saveWording))
		r.Get("/settings/senders", s.merchant(s.senders))
		r.Post("/settings/senders", s.merchant(s.connectTwilio))
		r.Post("/settings/senders/test", s.merchant(s.testTwilio))
		r.Post("/settings/senders/rate", s.merchant(s.setTextRate))
		r.Post("/settings/senders/resume", s.merchant(s.resumeTexts))
		r.Post("/settings/senders/disconnect", s.merchant(s.disconnectTwilio))
		r.Get("/privacy-requests", s.merchant(s.privacyRequests))
		r.Get("/privacy-requests/{id}", s.merchant(s.privacyRequest))
		r.Get("/auth/session-token", s.sessionToken)
	})

	r.Group(func(r chi.Router) { // a merchant on the way to install the app from outside the admin
		r.Use(noStore, noReferrer)
		r.Get("/auth/install", s.shopper(s.beginInstall))
		r.Get("/auth/callback", s.shopper(s.finishInstall))
	})
	r.Get("/privacy", s.shopper(s.privacy))
	r.With(middleware.Compress(5, "text/css", "text/javascript")).Handle("/static/*", s.assets)
	return r
}

package main

import (
	"net/http"
	"net/url"

	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/web"
)

// twilio is how web has a request of Twilio verified and read.
var twilio = web.Twilio{
	Text: func(t shop.Twilio, signed *url.URL, h http.Header, form url.Values) (web.InboundText, error) {
		text, err := notify.ReadText(t, signed, h, form)
		return web.InboundText{From: text.From, Body: text.Body, OptOutType: text.OptOutType}, err
	},
	Status: notify.ReadStatus,
}

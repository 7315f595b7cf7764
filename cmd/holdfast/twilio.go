package main

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/web"
)

// twilio is how web has a request of Twilio verified.
func twilio(public string) web.Twilio {
	verify := func(t shop.Twilio, u *url.URL, h http.Header, form url.Values) (notify.TwilioCallback, error) {
		r, err := http.NewRequest(http.MethodPost, u.String(), strings.NewReader(form.Encode()))
		if err != nil {
			return notify.TwilioCallback{}, errors.Join(notify.ErrMalformed, err)
		}
		r.Header, r.RequestURI = h, u.RequestURI()
		return notify.VerifyTwilio(r, public, t)
	}
	return web.Twilio{
		Text: func(t shop.Twilio, u *url.URL, h http.Header, form url.Values) (web.InboundText, error) {
			c, err := verify(t, u, h, form)
			if err != nil {
				return web.InboundText{}, err
			}
			in, err := c.Inbound()
			return web.InboundText{From: in.From, Body: in.Body, OptOutType: in.OptOutType}, err
		},
		Status: func(t shop.Twilio, u *url.URL, h http.Header, form url.Values) (waitlist.Delivery, bool, error) {
			c, err := verify(t, u, h, form)
			if err != nil {
				return waitlist.Delivery{}, false, err
			}
			return c.Delivery()
		},
	}
}

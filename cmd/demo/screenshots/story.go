package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"holdfast/cmd/demo/stage"
)

const (
	shop    = stage.FirstShop
	soldOut = "30011" // the oak chair, natural
	green   = "30021" // the reading chair, green
)

// story brings the first shop into the state that the pages are to show, and returns them.
func story(ctx context.Context, c *stage.Client) ([]view, error) {
	people := []string{"ana", "ben", "cleo", "dunya", "emre", "fay", "gwen"}
	for i, name := range people {
		if err := join(ctx, c, soldOut, name, i); err != nil {
			return nil, err
		}
	}
	for i, name := range people[:3] {
		if err := join(ctx, c, green, name, i); err != nil {
			return nil, err
		}
	}
	if err := c.SetStock(ctx, shop, soldOut, 4); err != nil {
		return nil, err
	}
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}
	link := func(name, path string) (string, error) {
		messages, err := c.Messages(ctx, name+"@example.com")
		if err != nil {
			return "", err
		}
		for _, m := range messages {
			if l := m.Link(path); l != "" {
				return l, nil
			}
		}
		return "", fmt.Errorf("%s was sent no link to %s", name, path)
	}
	links := map[string]string{}
	for name, l := range map[string][2]string{
		"reserve": {"ana", "/r/"}, "held": {"ben", "/r/"}, "passed": {"cleo", "/r/"}, "place": {"cleo", "/q/"}, "unsubscribe": {"ana", "/u/"},
	} {
		var err error
		if links[name], err = link(l[0], l[1]); err != nil {
			return nil, err
		}
	}
	for _, press := range []string{links["held"], links["passed"] + "/pass"} {
		status, _, _, err := c.Page(ctx, "POST", press, nil)
		if err != nil {
			return nil, err
		}
		if status != http.StatusSeeOther {
			return nil, fmt.Errorf("POST %s answers %d", press, status)
		}
	}
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}

	front := c.Sim + "/shops/" + shop + "/products/reading-chair?variant=" + green
	const (
		picture = `[...document.images].every((i) => i.complete && i.naturalWidth > 0)`
		asked   = `document.querySelector('notify-me [name="contact"]')?.checkVisibility() && ` + picture
	)
	return []view{
		{"block", front, "", asked},
		{"block-answered", front, `
			const form = document.querySelector('notify-me form');
			form.elements.contact.value = 'hana@example.com';
			form.querySelector('[type="checkbox"]').checked = true;
			form.requestSubmit();`,
			`document.querySelector('notify-me [role="status"]').textContent !== ''`},
		{"reserve", links["reserve"], "", `document.querySelector('.countdown') !== null && ` + picture},
		{"held", links["held"], "", `document.querySelector('a.main') !== null && ` + picture},
		{"passed", links["passed"], "", `document.querySelector('h1') !== null && ` + picture},
		{"place", links["place"], "", `document.querySelector('h1') !== null && ` + picture},
		{"unsubscribe", links["unsubscribe"], "", `document.querySelector('form') !== null`},
	}, nil
}

// join has a person ask for a variant by mail.
func join(ctx context.Context, c *stage.Client, variant, name string, i int) error {
	asked, err := c.Ask(ctx, shop, variant)
	if err != nil {
		return err
	}
	var can struct {
		Consent map[string]struct{ Version string }
	}
	if err := json.Unmarshal(asked.Body, &can); err != nil {
		return fmt.Errorf("variant %s: %w in %s", variant, err, asked.Body)
	}
	answer, err := c.Join(ctx, shop, fmt.Sprintf("203.0.113.%d", i+1), stage.Tap{
		VariantID: variant, Channel: "email", Contact: name + "@example.com", Country: "IE", Locale: "en", Consent: can.Consent["email"].Version,
	})
	if err != nil {
		return err
	}
	if answer.Status != http.StatusAccepted {
		return fmt.Errorf("%s's tap is answered %d %s", name, answer.Status, answer.Body)
	}
	return nil
}

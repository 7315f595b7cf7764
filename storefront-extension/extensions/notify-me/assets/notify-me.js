// Improves the sign-up form of the block: it follows the chosen variant, shows itself only while that
// variant is sold out and can be waited for, and answers in place.
//
// Themes have no one way to say that another variant was chosen. In order of trust: Shopify's standard
// event, the product form's hidden input, the older variant:change event, and the page's address.
(() => {
  if (customElements.get('notify-me')) return;

  const idOf = (gid) => String(gid ?? '').split('/').pop();

  class NotifyMe extends HTMLElement {
    static observedAttributes = ['data-variant-id'];

    connectedCallback() {
      this.life = new AbortController();
      if (document.readyState === 'loading') {
        document.addEventListener('DOMContentLoaded', () => this.start(), { signal: this.life.signal, once: true });
      } else {
        this.start();
      }
    }

    disconnectedCallback() {
      this.life.abort();
      this.asking?.abort();
      this.form = null;
    }

    // A theme that morphs its sections keeps the element and changes what is in it.
    attributeChangedCallback(name, before, after) {
      if (this.form && before !== after) {
        this.disconnectedCallback();
        this.connectedCallback();
      }
    }

    start() {
      this.form = this.querySelector('form');
      this.status = this.querySelector('[role="status"]');
      this.error = this.querySelector('[role="alert"]');
      this.data = JSON.parse(this.querySelector('script').textContent);
      this.fields = this.form.elements;
      this.consent = this.querySelector('.notify-me__consent input');
      this.agreement = this.querySelector('.notify-me__consent span');
      this.agreements = { email: this.agreement.dataset };
      this.fields.time_zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? ''; // no text at night
      this.variant = null;
      this.form.noValidate = true; // the messages are ours, and in the language of the page

      const on = (target, type, listener, capture = false) =>
        target.addEventListener(type, listener, { signal: this.life.signal, capture });
      on(this.form, 'submit', (event) => this.join(event));
      on(this.form, 'input', () => this.fail());
      on(this.form, 'change', ({ target }) => target.name === 'channel' && this.pick(target.value));
      on(document, 'shopify:product:select', (event) => this.selected(event));
      on(document, 'variant:change', ({ detail }) => this.choose(idOf(detail?.variant?.id), detail?.variant?.available));
      on(document, 'change', ({ target }) => this.changed(target), true);
      const follow = () => {
        const id = new URL(location.href).searchParams.get('variant');
        if (id) this.choose(id);
      };
      on(window, 'popstate', follow);
      if (window.navigation) on(navigation, 'currententrychange', follow);

      this.choose(this.dataset.variantId);
    }

    async selected(event) {
      if (idOf(event.product?.id) !== this.data.product) return;
      this.selection = event;
      let variant;
      try {
        ({ variant } = await event.promise);
      } catch {
        return; // the theme could not load it and stays as it was
      }
      if (this.selection === event) this.choose(idOf(variant?.id), variant?.availableForSale);
    }

    changed(input) {
      if (!input.matches?.('form[action*="/cart/add"] [name="id"]')) return;
      // An id that this product has is enough. Without one, the form must stand in the same section:
      // the page may have forms of other products.
      const known = input.value && this.data.complete;
      const section = this.closest('.shopify-section');
      if (known || !section || section.contains(input)) this.choose(input.value);
    }

    // Follows the shopper to a variant; '' is a combination that does not exist. available is what the
    // theme knows; only the app knows whether the variant can be waited for.
    async choose(id, available = this.data.available[id]) {
      if (id === this.variant) return;
      if (id && this.data.complete && !(id in this.data.available)) return; // of another product
      this.variant = id;
      this.fields.variant_id.value = id;
      this.say('');
      this.asking?.abort();
      if (!id || available) return this.show(false);
      const asking = (this.asking = new AbortController());
      let answer = { state: available === false ? 'waitable' : 'unknown' };
      try {
        const response = await fetch(`${this.dataset.endpoint}?variant_id=${encodeURIComponent(id)}`, {
          headers: { Accept: 'application/json' },
          signal: asking.signal,
        });
        if (response.ok) answer = await response.json();
        else if (response.status === 404) answer = {};
      } catch {
        // the app is out of reach: what the theme says stands
      }
      if (asking.signal.aborted) return;
      if (answer.channels?.length) this.offer(answer);
      this.show(answer.state === 'waitable');
    }

    show(shown) {
      this.hidden = !shown && !('preview' in this.dataset);
    }

    offer({ channels, consent }) {
      const own = this.agreement.dataset;
      this.agreements = { ...consent };
      // The same text, and the block has it in the language of the page.
      if (consent?.email?.version === own.version) this.agreements.email = own;
      this.querySelector('.notify-me__channels').hidden = channels.length < 2;
      const chosen = this.fields.channel.value;
      this.pick(channels.includes(chosen) ? chosen : channels[0]);
    }

    pick(channel) {
      const { channel: radios, contact } = this.fields;
      const sms = channel === 'sms';
      radios.value = channel;
      contact.type = sms ? 'tel' : 'email';
      contact.autocomplete = sms ? 'tel' : 'email';
      this.querySelector('[data-label]').textContent = this.data.texts[channel];
      this.querySelector('.notify-me__country').hidden = !sms;
      const { version, text } = this.agreements[channel] ?? {};
      if (version && version !== this.consent.value) {
        this.consent.value = version;
        this.consent.checked = false; // it was another text that was agreed to
        this.agreement.textContent = text;
      }
      this.fail();
    }

    async join(event) {
      event.preventDefault();
      if (this.form.ariaBusy === 'true') return;
      const { texts } = this.data;
      const tap = Object.fromEntries(new FormData(this.form));
      if (!tap.contact.trim()) {
        return this.fail(texts[tap.channel === 'sms' ? 'invalid_phone' : 'invalid_email'], 'contact');
      }
      if (!tap.consent) return this.fail(texts.consent_required, 'consent');

      this.fail();
      this.form.ariaBusy = 'true';
      try {
        const response = await fetch(this.form.action, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
          body: JSON.stringify(tap),
        });
        const { status, contact, error } = await response.json();
        if (tap.variant_id !== this.variant) return; // they have moved on
        if (!response.ok) return this.fail(texts[error?.code] ?? error?.message ?? texts.failed, error?.field);
        this.say(status === 'in_stock' ? texts.in_stock : texts.accepted.replace('[contact]', () => contact));
        this.status.focus();
        this.dispatchEvent(
          new CustomEvent('notify-me:submitted', {
            bubbles: true,
            detail: { variantId: tap.variant_id, channel: tap.channel, status },
          })
        );
      } catch {
        this.fail(texts.failed);
      } finally {
        if (this.form) this.form.ariaBusy = 'false';
      }
    }

    // Says how it ended, in the form's place; '' brings the form back.
    say(text) {
      this.status.textContent = text;
      this.form.hidden = text !== '';
      this.fail();
    }

    // Says what is wrong and takes the shopper to the field at fault; without a text all is well.
    fail(text = '', name = '') {
      for (const field of this.form.querySelectorAll('[aria-invalid]')) {
        field.removeAttribute('aria-invalid');
        field.removeAttribute('aria-describedby');
      }
      this.error.textContent = text;
      const field = name && this.form.querySelector(`[name="${CSS.escape(name)}"]:not([type="hidden"], [type="radio"])`);
      if (!field) return;
      field.setAttribute('aria-invalid', 'true');
      field.setAttribute('aria-describedby', this.error.id);
      field.focus();
    }
  }

  customElements.define('notify-me', NotifyMe);
})();

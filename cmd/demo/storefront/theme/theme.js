// The demo theme's variant picker. Themes differ in how they say that another variant was chosen; the
// page's ?announce= picks one way alone, so that each can be tried:
//
//   input     the product form's hidden input changes      url       the page's address changes
//   event     Shopify's standard event                     legacy    the variant:change event
//   rerender  the section is fetched and replaced
//
// Without it the theme does as most do: the input and the address.
(() => {
  const announce = new URL(location.href).searchParams.get('announce');
  const does = (way) => (announce ? announce === way : way === 'input' || way === 'url');

  async function choose(link) {
    const section = document.querySelector('.shopify-section');
    if (does('rerender')) {
      const page = await (await fetch(link.href)).text();
      section.innerHTML = new DOMParser().parseFromString(page, 'text/html').querySelector('.shopify-section').innerHTML;
      return;
    }
    const { product, variants } = JSON.parse(document.getElementById('product-data').textContent);
    const { id } = link.dataset;
    const { price, available } = variants[id];

    for (const each of section.querySelectorAll('.picker a')) {
      each.toggleAttribute('aria-current', false);
      if (each === link) each.setAttribute('aria-current', 'true');
    }
    section.querySelector('.price').textContent = price;
    section.querySelector('.badge').hidden = available;
    const button = section.querySelector('.buy');
    button.disabled = !available;
    button.textContent = available ? 'Buy now' : 'Sold out';
    const input = section.querySelector('form[action$="/cart/add"] [name="id"]');
    input.value = id;

    if (does('input')) input.dispatchEvent(new Event('change', { bubbles: true }));
    if (does('url')) {
      const url = new URL(location.href);
      url.searchParams.set('variant', id);
      url.searchParams.delete('bought');
      history.replaceState({}, '', url);
    }
    if (does('event')) {
      const event = new Event('shopify:product:select', { bubbles: true });
      event.product = { id: `gid://shopify/Product/${product}` };
      event.promise = Promise.resolve({
        variant: { id: `gid://shopify/ProductVariant/${id}`, availableForSale: available },
      });
      section.dispatchEvent(event);
    }
    if (does('legacy')) {
      section.dispatchEvent(
        new CustomEvent('variant:change', { bubbles: true, detail: { variant: { id: Number(id), available } } })
      );
    }
  }

  document.addEventListener('click', (event) => {
    const link = event.target.closest('.picker a');
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    choose(link);
  });
})();

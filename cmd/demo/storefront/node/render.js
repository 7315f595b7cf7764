// Renders app blocks as a storefront would, for the simulated storefront and its tests.
//
// One request per line on stdin, one answer per line on stdout, both JSON, until stdin ends:
//
//   {"extension": folder, "block": name, "settings": {...}, "globals": {...}}
//   {"html": ..., "javascript": ..., "stylesheet": ...} or {"error": ...}
//
// What liquidjs lacks of Shopify's Liquid is added here, as far as app blocks may use it. What is
// missing is an error and never an empty string: a filter, a variable, a translation.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Liquid, Tag } from 'liquidjs';

const escaped = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escapeHTML = (value) => String(value).replace(/[&<>"']/g, (character) => escaped[character]);

// The block's schema is read, not rendered.
class Schema extends Tag {
  constructor(token, rest, liquid) {
    super(token, rest, liquid);
    let source = '';
    for (let next = rest.shift(); next; next = rest.shift()) {
      if (next.name === 'endschema') {
        this.value = JSON.parse(source);
        return;
      }
      source += next.getText();
    }
    throw new Error('{% schema %} is not closed');
  }

  render() {}
}

// A locale file's text for a key, in the language or, where it is missing, in the extension's default.
function translator(extension, locale) {
  const text = (file, key) => {
    let value;
    try {
      value = JSON.parse(readFileSync(join(extension, 'locales', file), 'utf8'));
    } catch (error) {
      if (error.code !== 'ENOENT') throw error;
    }
    for (const part of key.split('.')) value = value?.[part];
    return value;
  };
  return (key, ...args) => {
    const found = text(`${locale}.json`, key) ?? text('en.default.json', key);
    if (typeof found !== 'string') throw new Error(`no translation for ${key}`);
    const values = Object.fromEntries(args); // liquidjs hands over named arguments as pairs
    return found.replace(/{{\s*(\w+)\s*}}/g, (_, name) => {
      if (!(name in values)) throw new Error(`${key} needs ${name}`);
      return escapeHTML(values[name]);
    });
  };
}

function render({ extension, block, settings, globals }) {
  const liquid = new Liquid({
    root: join(extension, 'blocks'),
    partials: join(extension, 'snippets'),
    extname: '.liquid',
    strictFilters: true,
    strictVariables: true,
    globals,
  });
  const translate = translator(extension, globals.request.locale.iso_code);
  liquid.registerTag('schema', Schema);
  liquid.registerFilter('t', translate);
  liquid.registerFilter('translate', translate);
  // Shopify's json cannot end the script element that it stands in.
  liquid.registerFilter('json', (value) =>
    JSON.stringify(value ?? null).replace(/[<>&\u2028\u2029]/g, (character) =>
      '\\u' + character.charCodeAt(0).toString(16).padStart(4, '0')
    )
  );

  const templates = liquid.parseFileSync(block);
  const schema = templates.find((template) => template instanceof Schema)?.value;
  if (!schema) throw new Error(`the block ${block} has no schema`);
  const defaults = schema.settings.map((setting) => [setting.id, setting.default ?? null]);
  const html = liquid.renderSync(templates, {
    block: {
      id: 'AbC123',
      type: block,
      shopify_attributes: '',
      settings: { ...Object.fromEntries(defaults), ...settings },
    },
  });
  return { html, javascript: schema.javascript ?? '', stylesheet: schema.stylesheet ?? '' };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = render(JSON.parse(line));
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}

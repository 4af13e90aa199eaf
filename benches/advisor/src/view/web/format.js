// Amounts and small pieces of the document.

const UNITS = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

/** Bytes as text: `1.50 GiB`. */
export function amount(bytes) {
  const [name, size] = UNITS.find(([, size]) => Math.abs(bytes) >= size) ?? ['', 0];
  return size ? `${(bytes / size).toFixed(2)} ${name}` : `${bytes} bytes`;
}

/** A change in bytes with its sign. */
export function change(bytes) {
  return bytes === 0 ? 'no change' : `${bytes > 0 ? '+' : '−'}${amount(Math.abs(bytes))}`;
}

/** A share, where 1 is the whole, in percent: `91.3 %`. */
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Settings as people name them. */
export const settingsName = (conf) => conf || 'default settings';

/** A name as it may be shown: controls, also those of the direction of text, are their numbers. */
export const shown = (name) => name.replace(
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufffe\uffff]/g,
  (char) => `\\u{${char.charCodeAt(0).toString(16)}}`,
);

/** The element with an id. */
export const by = (id) => document.getElementById(id);

/** An element with properties and children; children that are texts are escaped by the browser. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A text whose parts between backticks are code. */
export function prose(text) {
  const parts = text.split('`');
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, index) => (index % 2 ? element('code', {}, part) : part));
}

/** Settings that a narrow cell breaks after a comma, and within one setting only if they must. */
export const settingsCode = (conf) => element('code', {}, settingsName(conf).match(/[^,]+,?|,/g).map(
  (part) => element('span', { className: 'whole' },
    part.match(/[^_:]+[_:]*|[_:]+/g).flatMap((word) => [word, element('wbr')])),
));

/** Of a long list, as many are shown at first; one that is hardly longer is shown whole. */
const AT_FIRST = 10;
const HARDLY_LONGER = 12;

/** Adds what `make` makes of each of `all` to `list`. Returns a button that shows those left out at first, if there are any. */
export function shortened(list, all, make) {
  const few = all.length > HARDLY_LONGER ? AT_FIRST : all.length;
  list.append(...all.slice(0, few).map(make));
  if (few === all.length) return [];
  const button = element('button', { type: 'button', className: 'more' });
  let rest = [];
  const label = () => {
    button.textContent = rest.length ? `Show the first ${few}` : `Show all ${all.length.toLocaleString('en')}`;
    button.setAttribute('aria-expanded', `${rest.length > 0}`);
  };
  button.onclick = () => {
    const gone = rest;
    rest = gone.length ? [] : all.slice(few).map(make);
    gone.forEach((one) => one.remove());
    list.append(...rest);
    label();
    // What is above the button may have become much shorter.
    if (gone.length) button.scrollIntoView({ block: 'nearest' });
  };
  label();
  return [button];
}

/**
 * Says something of what is pointed at. The output grows if it must, but does not shrink again: else what is below
 * would move with the pointer.
 */
export function say(output, ...content) {
  output.replaceChildren(...content);
  output.style.minHeight = `${output.offsetHeight}px`;
}

/** A colour of the style sheet. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

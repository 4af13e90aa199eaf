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

/** The shell command that applies settings. */
export function command(conf) {
  if (!conf) return 'unset PYTORCH_CUDA_ALLOC_CONF';
  const quoted = /[^\w:,.%+\-/@]/.test(conf) ? `'${conf.replaceAll("'", "'\\''")}'` : conf;
  return `export PYTORCH_CUDA_ALLOC_CONF=${quoted}`;
}

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

/** A colour of the style sheet. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

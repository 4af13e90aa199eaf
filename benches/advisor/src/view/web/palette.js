// The colours of categories, in the order in which they are stacked. Okabe and Ito's, which colour-blind people can tell
// apart on light and on dark ground.

import { element } from './format.js';

const COLOURS = {
  parameters: '#0072b2', 'optimizer state': '#56b4e9', gradients: '#009e73', activations: '#e69f00', inputs: '#f0e442',
  temporaries: '#cc79a7', workspace: '#d55e00', unknown: '#8c939b',
};

/** The categories from the bottom up. */
export const STACKED = Object.keys(COLOURS);

export const categoryColour = (name) => COLOURS[name] ?? COLOURS.unknown;

/** The colour of the n-th phase: pale, so that its name can be read on it. */
export const phaseColour = (number) => `hsl(${(number * 137) % 360} 45% 78%)`;

/** Explains the colours of some categories, and the lines. */
export function legend(names, isLimited) {
  const entry = (style, text, thin) => element('span', {},
    element('span', { className: thin ? 'swatch thin' : 'swatch', style }), text);
  return [
    ...STACKED.filter((name) => names.has(name)).map((name) => entry(`background:${COLOURS[name]}`, name)),
    entry('background:var(--reserved)', 'reserved', true),
    ...(isLimited ? [entry('background:var(--limit)', 'available', true)] : []),
  ];
}

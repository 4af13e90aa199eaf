// The segments at a moment as a map on a canvas: one after another in rows, like text.

import { colour, element } from './format.js';
import { categoryColour } from './palette.js';

const ROWS = 22;
const HEIGHT = 14;
const PITCH = 18;
const GAP = 2;

export class SegmentMap {
  /** `onPoint(segment, block)` is told what is under the pointer or the cursor. */
  constructor(view, onPoint) {
    Object.assign(this, { view, onPoint, blocks: [], pieces: [], current: null });
    this.canvas = element('canvas', { tabIndex: 0, className: 'segments' });
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', 'Map of segments and blocks; arrow keys move through it');
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.onpointermove = ({ offsetX, offsetY }) => this.#point(this.#blockAt(offsetX, offsetY));
    this.canvas.onpointerdown = this.canvas.onpointermove;
    this.canvas.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = (this.current ?? -by) + by;
      this.#point(Math.min(this.blocks.length - 1, Math.max(0, next)));
    };
  }

  /** Shows segments, the largest first. `most` bytes fill the map. */
  show(segments, most) {
    const sorted = [...segments].sort((a, b) => b.bytes - a.bytes);
    this.blocks = sorted.flatMap((segment) => {
      let address = segment.address;
      return segment.blocks.map((block, index) => {
        const placed = { segment, block, address, isLast: index === segment.blocks.length - 1 };
        address += block.bytes;
        return placed;
      });
    });
    this.perRow = Math.max(1, Math.ceil(most / ROWS));
    this.current = null;
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0 || !this.perRow) return;
    const scale = devicePixelRatio;
    const unit = width / this.perRow;
    this.pieces = [];
    let [x, row] = [0, 0];
    this.blocks.forEach(({ block, isLast }, index) => {
      let left = block.bytes * unit;
      while (left > 0.01) {
        if (x >= width - 0.01) [x, row] = [0, row + 1];
        const part = Math.min(left, width - x);
        this.pieces.push({ index, x, row, width: part });
        x += part;
        left -= part;
      }
      if (isLast) x += GAP;
    });
    const height = (row + 1) * PITCH;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const context = this.canvas.getContext('2d');
    context.scale(scale, scale);
    for (const piece of this.pieces) this.#piece(context, piece);
  }

  #piece(context, { index, x, row, width }) {
    const { block } = this.blocks[index];
    const y = row * PITCH + 2;
    const gap = width > 2 ? 0.6 : 0;
    const one = block.allocation;
    if (block.state === 'free') {
      context.fillStyle = colour('free');
      context.fillRect(x, y, width - gap, HEIGHT);
      context.strokeStyle = colour('line');
      context.lineWidth = 1;
      if (width > 2) context.strokeRect(x + 0.5, y + 0.5, width - gap - 1, HEIGHT - 1);
      else context.fillRect(x, y, width, HEIGHT);
    } else {
      context.fillStyle = one === null ? categoryColour('unknown') : categoryColour(this.view.categoryName(one));
      context.fillRect(x, y, width - gap, HEIGHT);
    }
    if (block.state === 'pending') {
      context.fillStyle = colour('ground');
      for (let at = x + 2; at < x + width - 2; at += 6) context.fillRect(at, y, 2, HEIGHT);
    }
    if (index === this.current) {
      context.strokeStyle = colour('text');
      context.lineWidth = 2;
      context.strokeRect(x, y - 0.5, Math.max(1, width - gap), HEIGHT + 1);
    }
  }

  #blockAt(x, y) {
    const row = Math.floor(y / PITCH);
    const found = this.pieces.find((piece) => piece.row === row && x >= piece.x && x < piece.x + piece.width);
    return found ? found.index : null;
  }

  #point(index) {
    if (index === null || index === this.current || !this.blocks[index]) return;
    this.current = index;
    this.draw();
    this.onPoint(this.blocks[index]);
  }
}

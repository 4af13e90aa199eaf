// The bytes of a view: its description and its columns.

/** The number of bytes of the length of the description. */
const HEAD = 4;

/** A column of `length` numbers from byte `at` on, and the byte behind it. Each number is its difference from the one
 * before it, as 2d or −2d − 1, in groups of 7 bits, the lowest first. */
function column(bytes, at, length) {
  const values = new Float64Array(length);
  let before = 0;
  for (let index = 0; index < length; index++) {
    let [zigzag, weight, byte] = [0, 1, 0];
    do {
      byte = bytes[at++];
      zigzag += (byte & 0x7f) * weight;
      weight *= 128;
    } while (byte & 0x80);
    before += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    values[index] = before;
  }
  return [values, at];
}

/** The description with the columns of each of its tables. */
export function decoded(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const info = JSON.parse(new TextDecoder().decode(bytes.subarray(HEAD, HEAD + length)));
  let at = HEAD + length;
  const tables = {};
  for (const [table, rows, names] of info.tables) {
    tables[table] = { length: rows };
    for (const name of names) [tables[table][name], at] = column(bytes, at, rows);
  }
  return { info, ...tables };
}

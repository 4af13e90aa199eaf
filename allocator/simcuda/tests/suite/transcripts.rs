//! Calls of CUDA's functions with what they return: `tests/transcripts/*.txt`.
//!
//! A case (`== TITLE`) has environment variables (`FAKE_HOLD_EVENTS=1`) and calls, one in each line, as a program that
//! loads `libcuda.so.1` makes them. What is indented below a call is its status, if it failed, and the values that it
//! wrote. An argument is a number (`9MiB`, `-1`), a value written before (`addr`, `addr+512`), a name (`"gemm"`), or `null`.
//! Places are for 8 bytes (`&addr`), for 4 (`&i:count`), for a float (`&f:ms`), for the address of a text (`&s:name`) or of a
//! number of 8 bytes (`&n:nodes`), or for an open file, whose number is not told (`&o:file=0`). `&i:mode=2` is a place that has
//! 2 before the call, and `*handle` one that has what a call wrote. `[1 0xff addr]` is a place of words of 4 bytes, two for a
//! variable, `(addr 512)` are the arguments of a kernel, and `ptx` is the text of the kernels that fill and check memory.
//! `shape = [1 1 1]` names a place. A value that an older variable has is written as its name.
//!
//! `COALESCE_RECORD=1` writes what the calls do today: read the difference before you commit it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fs;

use coalesce_alloc::bytes;
use coalesce_alloc::driver::contents::PTX;

use crate::library::driver;
use crate::machine::Machine;
use crate::recorded;

/// A function with eleven arguments. In the calling conventions of 64-bit machines a function ignores those that it does
/// not have.
type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

/// What a place has before a call.
const UNWRITTEN: u64 = u64::MAX;

/// A value that a call writes.
#[derive(Clone, Copy)]
enum Width {
    Four,
    Eight,
    Float,
    Text,
    Pointed,
    OpenFile,
}

/// The variables of a case, in boxes whose addresses the calls get.
#[derive(Default)]
struct Program {
    /// The first word is the value; some functions write more.
    variables: BTreeMap<String, Box<[u64; 16]>>,
    /// The names of variables by age.
    names: Vec<String>,
    arrays: Vec<Vec<u32>>,
    texts: Vec<CString>,
    /// The arguments of kernels, and where each is.
    arguments: Vec<(Vec<u64>, Vec<u64>)>,
}

impl Program {
    /// Makes a call and returns what it did.
    fn call(&mut self, line: &str) -> Vec<String> {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let mut places: Vec<(String, Width, u64)> = Vec::new();
        let arguments: Vec<u64> = split(arguments)
            .into_iter()
            .map(|argument| self.argument(argument, &mut places))
            .collect();
        let symbol = driver().symbol(name);
        assert!(!symbol.is_null(), "no function {name}");
        let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
        // SAFETY: the cases pass numbers and places of the sizes that CUDA's headers declare, at most eleven.
        let status = unsafe {
            let function: Function = std::mem::transmute(symbol);
            let [a, b, c, d, e, f, g, h, i, j, k] = std::array::from_fn(at);
            function(a, b, c, d, e, f, g, h, i, j, k)
        };
        let mut told = Vec::new();
        if status != 0 {
            told.push(format!("status {status}"));
        }
        for (name, width, before) in places {
            let value = self.variables[&name][0];
            if value != before {
                told.push(format!("{name} = {}", self.written(&name, value, width)));
            }
        }
        told
    }

    fn argument(&mut self, text: &str, places: &mut Vec<(String, Width, u64)>) -> u64 {
        if let Some(place) = text.strip_prefix('&') {
            let (place, before) = match place.split_once('=') {
                Some((place, before)) => (place, before.parse().expect("a number")),
                None => (place, UNWRITTEN),
            };
            let (name, width) = match place.split_once(':') {
                Some(("i", name)) => (name, Width::Four),
                Some(("f", name)) => (name, Width::Float),
                Some(("s", name)) => (name, Width::Text),
                Some(("n", name)) => (name, Width::Pointed),
                Some(("o", name)) => (name, Width::OpenFile),
                _ => (place, Width::Eight),
            };
            // The number of a file is chance.
            if !self.variables.contains_key(name) && !matches!(width, Width::OpenFile) {
                self.names.push(name.to_owned());
            }
            let room = self.variables.entry(name.to_owned()).or_default();
            room[0] = before;
            places.push((name.to_owned(), width, before));
            return room.as_mut_ptr().expose_provenance() as u64;
        }
        if let Some(name) = text.strip_prefix('*') {
            let room = self.variables.get_mut(name).expect("a place");
            return room.as_mut_ptr().expose_provenance() as u64;
        }
        if let Some(name) = text.strip_prefix('"') {
            return self.keep_text(name.trim_end_matches('"'));
        }
        if text == "ptx" {
            return self.keep_text(PTX);
        }
        if let Some(words) = text.strip_prefix('[') {
            return self.keep_words(words.trim_end_matches(']'));
        }
        if let Some(values) = text.strip_prefix('(') {
            let values = values.trim_end_matches(')').split_whitespace();
            let values: Vec<u64> = values.map(|value| self.number(value)).collect();
            let places = values.iter().map(place_of).collect();
            self.arguments.push((values, places));
            return place_of(&self.arguments.last().unwrap().1[0]);
        }
        self.number(text)
    }

    fn keep_text(&mut self, text: &str) -> u64 {
        self.texts.push(CString::new(text).unwrap());
        place_of(
            self.texts
                .last()
                .unwrap()
                .as_bytes_with_nul()
                .first()
                .unwrap(),
        )
    }

    fn keep_words(&mut self, words: &str) -> u64 {
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let mut all = Vec::new();
        for word in words.split_whitespace() {
            match self.variables.get(word) {
                Some(value) => all.extend(halves(value[0])),
                None => all.push(self.number(word) as u32),
            }
        }
        all.resize(32, 0);
        self.arrays.push(all);
        place_of(&self.arrays.last().unwrap()[0])
    }

    /// A number, or the value of a variable.
    fn number(&self, text: &str) -> u64 {
        let (text, beyond) = text.split_once('+').unwrap_or((text, "0"));
        let beyond = bytes::parse(beyond).expect("an amount");
        let value = match text {
            "null" => 0,
            _ if text.starts_with("0x") => u64::from_str_radix(&text[2..], 16).expect("a number"),
            _ if text.starts_with('-') => text.parse::<i64>().expect("a number").cast_unsigned(),
            _ => match self.variables.get(text) {
                Some(value) => value[0],
                None => bytes::parse(text).unwrap_or_else(|_| panic!("no variable {text}")),
            },
        };
        value + beyond
    }

    /// Names a place of words.
    fn name(&mut self, name: &str, words: &str) {
        let place = self.keep_words(words);
        self.variables.entry(name.to_owned()).or_default()[0] = place;
    }

    /// A value: the variable that had it first, or a number.
    fn written(&self, name: &str, value: u64, width: Width) -> String {
        match width {
            Width::Text | Width::Pointed if value == 0 => "null".to_owned(),
            Width::Four => (value as i32).to_string(),
            Width::Float => f32::from_bits(value as u32).to_string(),
            // SAFETY: the call wrote the address of a text that stays.
            Width::Text => unsafe { CStr::from_ptr(value as *const c_char) }
                .to_string_lossy()
                .into_owned(),
            // SAFETY: the call wrote the address of a number, and nothing happened since.
            Width::Pointed => format!("{:#x}", unsafe { *(value as *const u64) }),
            Width::OpenFile => "an open file".to_owned(),
            Width::Eight => {
                let mut older = self.names.iter().take_while(|other| *other != name);
                let same = older.find(|other| self.variables[*other][0] == value);
                match same {
                    Some(other) => other.clone(),
                    None if value < 1 << 20 => value.to_string(),
                    None if value.is_multiple_of(1 << 20) && value < 1 << 40 => {
                        format!("{}MiB", value >> 20)
                    }
                    None => format!("{value:#x}"),
                }
            }
        }
    }
}

/// Where a value is, for a function that gets its address.
fn place_of<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}

/// The arguments of a call, where brackets hold several words together.
fn split(arguments: &str) -> Vec<&str> {
    let mut is_inside = false;
    let parts = arguments.split(|c: char| {
        is_inside = (is_inside || ['[', '('].contains(&c)) && ![']', ')'].contains(&c);
        c == ' ' && !is_inside
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The lines of a case with what its calls do now.
fn performed(case: &str) -> String {
    let mut program = Program::default();
    let mut done = String::new();
    for line in case.lines().filter(|line| !line.starts_with("  ")) {
        done += line;
        done.push('\n');
        let call = line.split('#').next().unwrap_or_default().trim();
        if let Some((name, words)) = call.split_once(" = [") {
            program.name(name, words.trim_end_matches(']'));
        } else if call.starts_with("cu") {
            for outcome in program.call(call) {
                done += &format!("  {outcome}\n");
            }
        }
    }
    done
}

#[test]
fn calls_go_as_written() {
    let mut number = 0;
    recorded::check("transcripts", |written| {
        let mut now = String::new();
        for case in written.split_inclusive("\n\n") {
            if !case.contains("==") {
                now += case;
                continue;
            }
            let place = format!("{}/transcript-{number}", env!("CARGO_TARGET_TMPDIR"));
            let variables = case
                .lines()
                .filter_map(|line| line.split_once('='))
                .filter(|(name, _)| name.starts_with("FAKE_"));
            // The last variable distinguishes the machines of this test.
            let variables: Vec<_> = variables.chain([("TRANSCRIPT", &place[..])]).collect();
            Machine::with(&variables).run(|| fs::write(&place, performed(case)).unwrap());
            now += &fs::read_to_string(&place).unwrap_or_default();
            number += 1;
        }
        now
    });
}

use super::{find, inactive_modules};

/// The mutants of the statements of a function, but that it returns at once.
fn whats(statements: &str) -> Vec<String> {
    of_file(&format!("fn f() {{ {statements} }}"))
        .into_iter()
        .filter(|what| what != "returns at once")
        .collect()
}

fn of_file(code: &str) -> Vec<String> {
    let file = find("a.rs", code).unwrap();
    file.mutants()
        .map(|(_, mutant)| mutant.what.clone())
        .collect()
}

/// The code of a mutant in place of the original.
fn mutated(code: &str, what: &str) -> String {
    let file = find("a.rs", code).unwrap();
    let (_, mutant) = file
        .mutants()
        .find(|(_, mutant)| mutant.what == what)
        .unwrap_or_else(|| panic!("no mutant '{what}'"));
    file.with(mutant)
}

#[test]
fn operators_become_their_neighbours() {
    assert_eq!(
        whats("let x = a < b;"),
        ["`a < b`: < -> <=", "`a < b`: < -> >="]
    );
    for (now, then) in [
        ("+", "-"),
        ("-", "+"),
        ("*", "+"),
        ("/", "*"),
        ("%", "/"),
        ("&", "|"),
        ("|", "&"),
        ("^", "&"),
        ("<<", ">>"),
        (">>", "<<"),
        ("&&", "||"),
        ("||", "&&"),
        ("==", "!="),
        ("!=", "=="),
    ] {
        let what = format!("`a {now} b`: {now} -> {then}");
        assert_eq!(whats(&format!("let x = a {now} b;")), [what]);
    }
    let text = ["let x = a + \"b\";", "let x = format!(\"{a}\") + b;"];
    assert!(text.iter().all(|code| whats(code).is_empty()));
}

#[test]
fn operands_keep_their_parts() {
    let code = "fn f() -> T { a || b || c << 2 == d }";
    let what = "`a || b || c << 2 == d`: || -> &&";
    let then = "fn f() -> T { (a || b) && (c << 2 == d) }";
    assert_eq!(mutated(code, what), then);
}

#[test]
fn assignments_change_and_go() {
    assert_eq!(
        whats("a += 1; g();"),
        [
            "delete `a += 1;`",
            "`a += 1`: += -> -=",
            "literal 1 -> 2",
            "delete `g();`"
        ]
    );
    assert_eq!(
        whats("match a { X => b = c, Y => d -= e }"),
        ["delete `b = c`", "`d -= e`: -= -> +=", "delete `d -= e`"]
    );
}

#[test]
fn negations_are_dropped() {
    let code = "fn f() -> T { !a.b(c) }";
    assert_eq!(mutated(code, "`!a.b(c)`: drop !"), "fn f() -> T { a.b(c) }");
    assert_eq!(whats("let x = -a; let y = *b;"), ["`-a`: drop -"]);
}

#[test]
fn conditions_hold_always_or_never() {
    assert_eq!(
        whats("if a { g(); h(); }"),
        [
            "if `a` -> true",
            "if `a` -> false",
            "delete `g();`",
            "delete `h();`"
        ]
    );
    assert_eq!(
        whats("while a { g(); }"),
        ["while `a` -> false", "delete `g();`"]
    );
    assert_eq!(
        whats("match a { true => b, false => c }"),
        ["match `a` -> true", "match `a` -> false"]
    );
    assert_eq!(
        whats("match a { X if b => c, Y => d }"),
        ["guard `b` -> true", "guard `b` -> false"]
    );
}

#[test]
fn conditions_with_let_never_hold_and_their_other_parts_always() {
    let code = "fn f() { if let A(b) = c && d < e { g(); h(); } }";
    let all = "if `let A(b) = c && d < e` -> false";
    let then = "fn f() { if let A(b) = c && d < e && false { g(); h(); } }";
    assert_eq!(mutated(code, all), then);
    let then = "fn f() { if let A(b) = c && true { g(); h(); } }";
    assert_eq!(mutated(code, "if `d < e` -> true"), then);
    assert!(!of_file(code).iter().any(|what| what.contains("&& ->")));
}

#[test]
fn arms_are_left_to_one_that_accepts_everything() {
    let code = "fn f() -> T { match a { X => b, Y if c => d, _ => e } }";
    let then = "fn f() -> T { match a { X if false => b, Y if c => d, _ => e } }";
    assert_eq!(mutated(code, "arm `X` -> _"), then);
    assert!(!of_file(code).iter().any(|what| what.starts_with("arm `Y")));
    let without =
        "match a { X => b, Y => c } match a { X => b, _ => b } match a { X => b, NONE => c }";
    assert_eq!(whats(without), [""; 0]);
}

#[test]
fn functions_return_at_once() {
    let values = |returned: &str, body: &str| {
        let code = format!("impl A {{ fn f() -> {returned} {{ {body} }} }}");
        let all = of_file(&code).into_iter();
        let all = all.filter_map(|what| {
            let value = what.strip_prefix("returns ")?.strip_suffix(" at once")?;
            Some(value.to_owned())
        });
        all.collect::<Vec<_>>()
    };
    for (returned, expected) in [
        ("bool", &["true", "false"][..]),
        ("u64", &["0", "1"]),
        ("f64", &["0.0"]),
        ("String", &["String::new()"]),
        ("&str", &["\"\""]),
        ("&[u8]", &["&[]"]),
        ("Option<&mut T>", &["None"]),
        ("Result<(), E>", &["Ok(())"]),
        ("fmt::Result", &["Ok(())"]),
        ("io::Result<Vec<T>>", &["Ok(Vec::new())"]),
        ("(bool, T)", &["(true, Default::default())"]),
        ("Box<u8>", &["Box::new(0)"]),
        ("Box<dyn T>", &[]),
        ("impl Iterator<Item = T>", &[]),
        ("&T", &[]),
        ("!", &[]),
    ] {
        assert_eq!(values(returned, "a"), expected, "{returned}");
    }
    assert_eq!(values("bool", "true"), ["false"]);
    assert_eq!(of_file("fn default() -> T { a }"), [""; 0]);
    assert_eq!(of_file("fn f() { a }"), ["returns at once"]);
    assert_eq!(of_file("fn f() {}"), [""; 0]);
    let then = mutated("fn f() -> u8 { a }", "returns 0 at once");
    assert_eq!(then, "fn f() -> u8 { return 0; a }");
}

#[test]
fn statements_are_deleted_for_what_they_do() {
    assert_eq!(
        whats("let a = g(); h?; let _ = i(); a.b(); a; return; if c { d } else { e(); }"),
        [
            "delete `h?;`",
            "delete `let _ = i();`",
            "delete `a.b();`",
            "if `c` -> true",
            "if `c` -> false",
            "delete `e();`",
        ]
    );
    // It would be the same as a condition that never holds, or a function that returns at once.
    assert_eq!(
        whats("if c { return; }"),
        ["if `c` -> true", "if `c` -> false"]
    );
    assert_eq!(of_file("fn f() { g(); }"), ["returns at once"]);
    assert_eq!(
        whats("for a in b { if c { g(); continue; } h() }"),
        [
            "if `c` -> true",
            "if `c` -> false",
            "delete `g();`",
            "delete `continue;`",
            "delete `h()`",
        ]
    );
    assert_eq!(whats("let a = { g(); h() };"), ["delete `g();`"]);
}

#[test]
fn methods_become_their_counterparts() {
    assert_eq!(
        whats("let x = a.first(); let y = a.min(b); let z = max(a, b);"),
        [
            "`a.first()`: first -> last",
            "`a.min(b)`: min -> max",
            "`max(a, b)`: max -> min"
        ]
    );
    let code = "fn f() -> T { a.b(c.saturating_sub(d)) }";
    let what = "`c.saturating_sub(d)`: saturating_sub -> saturating_add";
    assert_eq!(
        mutated(code, what),
        "fn f() -> T { a.b(c.saturating_add(d)) }"
    );
}

#[test]
fn adaptors_of_iterators_change() {
    let code = "fn f() -> T { a.rev().chain(b).skip(1).take(c.d) }";
    for (what, then) in [
        ("`a.rev()`: drop rev", "a.chain(b).skip(1).take(c.d)"),
        (
            "`a.rev().chain(b)`: drop chain",
            "a.rev().skip(1).take(c.d)",
        ),
        ("literal 1 -> 0", "a.rev().chain(b).skip(0).take(c.d)"),
        ("literal 1 -> 2", "a.rev().chain(b).skip(2).take(c.d)"),
        ("`c.d` -> c.d + 1", "a.rev().chain(b).skip(1).take(c.d + 1)"),
    ] {
        assert_eq!(mutated(code, what), format!("fn f() -> T {{ {then} }}"));
    }
}

#[test]
fn closures_and_receivers_that_are_conditions_are_decided() {
    assert_eq!(
        whats("let x = a.filter(|b| b.c()); let y = d.then(|| e); let z = a.map(|b| b.c());"),
        [
            "filter `b.c()` -> true",
            "filter `b.c()` -> false",
            "then `d` -> true",
            "then `d` -> false"
        ]
    );
}

#[test]
fn literals_become_the_next() {
    assert_eq!(
        whats("let x = [1_000_u64, 0x10, true as u8, -3]; let y = (1.5, 'a', \"b\", x.0);"),
        [
            "literal 1_000_u64 -> 1001u64",
            "literal 0x10 -> 17",
            "literal true -> false",
            "literal 3 -> 4"
        ]
    );
}

#[test]
fn arguments_of_some_macros_change() {
    assert_eq!(
        whats(
            "let x = format!(\"{a} {}\", b - 1, c = d - e); let y = vec![1; 2]; let z = matches!(f(3), 4 if g);"
        ),
        [
            "`b - 1`: - -> +",
            "literal 1 -> 2",
            "`d - e`: - -> +",
            "literal 1 -> 2 #2",
            "literal 2 -> 3",
            "literal 3 -> 4",
            "guard `g` -> true",
            "guard `g` -> false",
        ]
    );
    assert_eq!(
        whats("println!(\"a\"); writeln!(a)?;"),
        ["delete `println!(\"a\");`", "delete `writeln!(a)?;`"]
    );
    let others = "assert!(a < 1); assert_eq!(a, 1); other!(1 + 2); unreachable!();";
    assert_eq!(whats(others), [""; 0]);
}

#[test]
fn what_a_program_cannot_choose_is_left_alone() {
    for code in [
        "const A: u8 = 1 + 2;",
        "static A: u8 = 1 + 2;",
        "const fn f() -> u8 { 1 + 2 }",
        "enum A { B = 1 }",
        "struct A([u8; 2]);",
        "impl A { const B: u8 = 1; }",
        "trait A { const B: u8 = 1; fn f() -> u8; }",
        "macro_rules! a { () => { 1 + 2 } }",
        "#[a(1 + 2)] struct A;",
        "#[cfg(test)] mod tests { fn f() { g(1); h(2); } }",
        "#[test] fn f() { g(1); h(2); }",
        "#[cfg(windows)] fn f() { g(1); h(2); }",
        "#[cfg(not(unix))] impl A { fn f() { g(1); h(2); } }",
    ] {
        assert_eq!(of_file(code), [""; 0], "{code}");
    }
    assert_eq!(
        whats("const A: u8 = 1; let [b, 2..=3] = [a; 4]; let c: [u8; 5]; g::<6>; const { 7 }"),
        [""; 0]
    );
    for code in [
        "#[cfg(unix)] fn f() { g(); }",
        "#[cfg(all(feature = \"cuda\", not(test)))] fn f() { g(); }",
        "#[cfg(any(windows, target_os = \"linux\"))] fn f() { g(); }",
    ] {
        assert_eq!(of_file(code), ["returns at once"], "{code}");
    }
}

#[test]
fn identities_do_not_depend_on_what_stands_elsewhere() {
    let function = "impl A<T> { fn f() { g(1); h(1); if a { g(1); i(); } } }";
    let before = "fn other() { g(1); }\n\nmod m { fn f() { g(1); } }\n";
    let identities = |code: &str| {
        let file = find("a.rs", code).unwrap();
        let mutants = file.mutants().map(|(_, mutant)| mutant);
        let mutants = mutants.filter(|mutant| mutant.function == "A::f");
        let names = mutants.map(|mutant| mutant.what.clone());
        names.collect::<Vec<_>>()
    };
    let here = identities(function);
    assert_eq!(
        here.iter().filter(|what| what.contains('#')).count(),
        3,
        "{here:?}"
    );
    assert_eq!(identities(&format!("{before}{function}")), here);
    let file = find("a.rs", before).unwrap();
    let places: Vec<_> = file
        .mutants()
        .map(|(_, mutant)| (&*mutant.function, mutant.line))
        .collect();
    assert_eq!(
        places,
        [("other", 1), ("other", 1), ("m::f", 3), ("m::f", 3)]
    );
}

#[test]
fn modules_for_tests_are_known() {
    let code = "mod a; #[cfg(test)] mod b; #[cfg(test)] mod c { } #[cfg(windows)] mod d;";
    assert_eq!(inactive_modules("a.rs", code).unwrap(), ["b", "d"]);
    assert!(inactive_modules("a.rs", "fn").is_err());
}

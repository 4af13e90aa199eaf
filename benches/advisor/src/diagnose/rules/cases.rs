//! Each rule on its cases, `cases/RULE.txt`: [programs](crate::diagnose::testing::case), and what the rule finds in them.

use coalesce_workloads::cases;

use super::{RULES, Rule};
use crate::diagnose::testing::case;
use crate::diagnose::text;

#[test]
fn the_cases_of_each_rule() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/diagnose/rules/cases");
    for (name, rule) in RULES {
        cases::check(format!("{folder}/{name}.txt"), |case| {
            find(name, *rule, case)
        });
    }
}

/// What a rule finds in a case.
fn find(name: &'static str, rule: Rule, case: &str) -> String {
    let Some(mut found) = case::gather(case, rule) else {
        return "nothing".to_owned();
    };
    found.rule = name;
    let shown = text(std::slice::from_ref(&found));
    let mut shown: String = shown
        .lines()
        .fold(String::new(), |all, line| all + line.trim_start() + "\n");
    shown += &match &found.conf {
        Some(conf) => format!("{} bytes, with '{conf}'", found.bytes),
        None => format!("{} bytes", found.bytes),
    };
    shown
}

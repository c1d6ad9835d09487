//! The tables `[parallel]` and `[place]`: what the flags of these names say in one line.

use super::type_name;
use crate::mistakes::did_you_mean;
use meshwork::mesh::{Plan, Rule};
use toml::de::{DeTable, DeValue};

/// The byte of the file where a key begins, with its flag, or with what is wrong there.
type At<T> = (usize, T);

/// `[parallel]` with whole numbers under the words of a plan: `data = 2`.
pub(super) fn parallel(start: usize, table: &DeTable<'_>) -> Result<At<String>, At<String>> {
    let mut words: Vec<At<String>> = Vec::new();
    for (key, value) in table {
        let (at, key) = (key.span().start, key.get_ref().as_ref());
        if !Plan::WORDS.contains(&key) {
            let hint = did_you_mean(key, &Plan::WORDS.map(String::from));
            return Err((at, format!("there is no key {key:?} in [parallel]{hint}")));
        }
        let number = match value.get_ref() {
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let Some(number) = number else {
            let given = type_name(value.get_ref());
            return Err((at, format!("{key} must be a whole number without quotes, such as 2, not {given}")));
        };
        let word = format!("{key}={number}");
        word.parse::<Plan>().map_err(|e| (at, e.to_string()))?;
        words.push((at, word));
    }
    words.sort();
    let words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
    Ok((start, format!("--parallel={}", words.join(","))))
}

/// `[place]` with placements under patterns of names: `"*.fc1.weight" = { tensor = "split(0)" }`.
pub(super) fn place(table: &DeTable<'_>) -> Result<Vec<At<String>>, At<String>> {
    let mut rules = Vec::new();
    for (pattern, value) in table {
        let (at, pattern) = (pattern.span().start, pattern.get_ref());
        let placements = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Table(axes) => placements(pattern, axes)?,
            other => {
                let given = type_name(other);
                return Err((
                    at,
                    format!("{pattern:?} must be placements such as {{ tensor = \"split(0)\" }}, not {given}"),
                ));
            }
        };
        rules.push((at, format!("--place={pattern}={placements}")));
    }
    Ok(rules)
}

/// `{ tensor = "split(0)", data = "replicated" }` as on the command line.
fn placements(pattern: &str, axes: &DeTable<'_>) -> Result<String, At<String>> {
    let mut words = Vec::new();
    for (axis, value) in axes {
        let (at, axis) = (axis.span().start, axis.get_ref().as_ref());
        let value = match value.get_ref() {
            DeValue::String(text) => text,
            DeValue::Table(_) => {
                let name = format!("{pattern}.{axis}");
                return Err((at, format!("a name with dots stands in quotes in [place]: {name:?}")));
            }
            other => {
                return Err((
                    at,
                    format!("{axis} must be text in quotes, such as \"split(0)\", not {}", type_name(other)),
                ));
            }
        };
        if !Rule::AXES.contains(&axis) {
            let hint = did_you_mean(axis, &Rule::AXES.map(String::from));
            return Err((
                at,
                format!("there is no axis {axis:?} in [place]{hint}; known are {}", Rule::AXES.join(", ")),
            ));
        }
        words.push(format!("{axis}:{value}"));
    }
    Ok(if words.is_empty() { "replicated".to_string() } else { words.join(",") })
}

#[cfg(test)]
mod tests {
    use crate::config::flags_of;

    fn flags(text: &str) -> Result<Vec<String>, String> {
        flags_of(text, "run.toml")
    }

    #[test]
    fn tables_become_the_flags_of_their_names() {
        let lines = "parallel = \"data=2,tensor=2\"\naccumulate = 2\ndevices = \"cpu:4\"\n";
        assert_eq!(flags(lines).unwrap(), ["--parallel=data=2,tensor=2", "--accumulate=2", "--devices=cpu:4"]);
        let tables = "[parallel]\ntensor = 0x2\nzero = 1\ndata = 3\n\n[place]\n\"*.fc2.weight\" = { tensor = \"split(1)\", \
                      data = \"sharded(0)\" }\n\"fc1.*\" = \"replicated\"\n\"conv1.bias\" = {}\n";
        let expected = [
            "--parallel=tensor=2,zero=1,data=3",
            "--place=*.fc2.weight=data:sharded(0),tensor:split(1)",
            "--place=fc1.*=replicated",
            "--place=conv1.bias=replicated",
        ];
        assert_eq!(flags(tables).unwrap(), expected);
    }

    #[test]
    fn mistakes_in_tables_name_file_and_line() {
        let cases = [
            (
                "[parallel]\ndata = 2\ntenser = 2",
                "line 3: there is no key \"tenser\" in [parallel] (did you mean tensor?)",
            ),
            ("[parallel]\ndata = \"2\"", "line 2: data must be a whole number without quotes, such as 2, not text"),
            ("[parallel]\nzero = 4", "line 2: \"zero=4\" in the plan \"zero=4\": zero is 0, 1, 2 or 3"),
            ("parallel = 4", "line 1: parallel must be text in quotes, not a whole number"),
            (
                "lr = 1\nparallel = \"tensr=2\"",
                "line 2: parallel: \"tensr=2\" in the plan \"tensr=2\": known are data, tensor, zero, sequence, accumulate (did you mean tensor?)",
            ),
            (
                "[place]\n\"fc1.*\" = { tenser = \"split(0)\" }",
                "line 2: there is no axis \"tenser\" in [place] (did you mean tensor?); known are data, sequence, tensor",
            ),
            (
                "[place]\nfc1.weight = { tensor = \"split(0)\" }",
                "line 2: a name with dots stands in quotes in [place]: \"fc1.weight\"",
            ),
            (
                "[place]\n\"fc1.*\" = { tensor = 0 }",
                "line 2: tensor must be text in quotes, such as \"split(0)\", not a whole number",
            ),
            (
                "[place]\n\"fc1.*\" = 0",
                "line 2: \"fc1.*\" must be placements such as { tensor = \"split(0)\" }, not a whole number",
            ),
            (
                "[place]\n\"fc1.*\" = { tensor = \"cut(0)\" }",
                "line 2: place: the rule \"fc1.*=tensor:cut(0)\": \"cut(0)\" is no placement; known are replicated, split(0), sharded(0)",
            ),
            (
                "place = \"fc1.*=tensor:split(0)\"",
                "line 1: place must be a table, such as [place] with \"*.fc1.weight\" = { tensor = \"split(0)\" }, not text",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(flags(text).unwrap_err(), format!("run.toml, {expected}"), "{text}");
        }
    }
}

//! Rules of a plan: placements of parameters by their names.

use super::Placement;
use super::plan::PlanError;
use crate::nn::nearest;
use std::fmt;
use std::str::FromStr;
use wildmatch::WildMatch;

/// Placements of the parameters whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A name in which `*` stands for any characters and `?` for one. A `*.` at its beginning may stand for nothing, so
    /// that `*.fc1.weight` names that layer at any depth.
    pub pattern: String,
    /// Axes and the placements along them; along others, the parameters are replicated.
    pub placements: Vec<(String, Placement)>,
}

impl Rule {
    /// The axes that a rule can name.
    pub const AXES: [&'static str; 3] = ["data", "sequence", "tensor"];

    /// Placements for the parameters that a pattern names.
    pub fn new<'a>(pattern: &str, placements: impl IntoIterator<Item = (&'a str, Placement)>) -> Rule {
        let placements = placements.into_iter().map(|(axis, placement)| (axis.to_string(), placement)).collect();
        Rule { pattern: pattern.to_string(), placements }
    }

    /// Whether the pattern names this parameter.
    pub fn matches(&self, name: &str) -> bool {
        let anywhere = self.pattern.strip_prefix("*.");
        WildMatch::new(&self.pattern).matches(name) || anywhere.is_some_and(|rest| WildMatch::new(rest).matches(name))
    }
}

impl FromStr for Rule {
    type Err = PlanError;

    /// A rule such as `*.fc1.weight=tensor:split(0)`: a pattern, and for each axis one of `replicated`, `split(dim)` and
    /// `sharded(dim)`, with commas between; `*.fc1.weight=replicated` along all axes.
    fn from_str(text: &str) -> Result<Rule, PlanError> {
        let wrong = |problem: String| PlanError::Rule { rule: text.to_string(), problem };
        let Some((pattern, placements)) = text.rsplit_once('=').filter(|(pattern, _)| !pattern.is_empty()) else {
            return Err(wrong("it must be NAME=AXIS:PLACEMENT, such as *.fc1.weight=tensor:split(0)".to_string()));
        };
        let mut rule = Rule::new(pattern, []);
        if placements.trim() == "replicated" {
            return Ok(rule);
        }
        for word in placements.split(',') {
            let Some((axis, placement)) = word.split_once(':') else {
                return Err(wrong(format!("{word:?} must be AXIS:PLACEMENT, such as tensor:split(0)")));
            };
            let axis = axis.trim();
            if !Rule::AXES.contains(&axis) {
                let hint = nearest(axis, Rule::AXES.into_iter())
                    .map_or(String::new(), |near| format!(" (did you mean {near}?)"));
                return Err(wrong(format!("there is no axis {axis:?}{hint}; known are {}", Rule::AXES.join(", "))));
            }
            if rule.placements.iter().any(|(known, _)| known == axis) {
                return Err(wrong(format!("{axis} is there twice")));
            }
            let placed = placement_of(placement.trim()).ok_or_else(|| {
                wrong(format!("{placement:?} is no placement; known are replicated, split(0), sharded(0)"))
            })?;
            rule.placements.push((axis.to_string(), placed));
        }
        Ok(rule)
    }
}

/// `replicated`, `split(0)` or `sharded(0)`.
fn placement_of(text: &str) -> Option<Placement> {
    if text == "replicated" {
        return Some(Placement::Replicated);
    }
    let (kind, dim) = text.strip_suffix(')')?.split_once('(')?;
    let dim = dim.trim().parse().ok()?;
    match kind {
        "split" => Some(Placement::split(dim)),
        "sharded" => Some(Placement::sharded(dim)),
        _ => None,
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.placements.iter().map(|(axis, placement)| format!("{axis}:{placement}")).collect();
        let words = if words.is_empty() { "replicated".to_string() } else { words.join(",") };
        write!(f, "{}={words}", self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_written() {
        for text in ["*.fc1.weight=tensor:split(0)", "conv?.bias=data:sharded(0),tensor:replicated", "*=replicated"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        let rule: Rule = "a=b=tensor: split( 1 ), data:replicated".parse().unwrap();
        let placements = [("tensor", Placement::split(1)), ("data", Placement::Replicated)];
        assert_eq!(rule, Rule::new("a=b", placements));
    }

    #[test]
    fn a_star_and_a_dot_may_stand_for_nothing() {
        let matches = |pattern: &str, name: &str| Rule::new(pattern, []).matches(name);
        assert!(matches("*.fc1.weight", "fc1.weight") && matches("*.fc1.weight", "head.fc1.weight"));
        assert!(!matches("*.fc1.weight", "myfc1.weight") && !matches("*fc1.weight", "fc1.bias"));
        assert!(matches("fc?.*", "fc1.weight") && matches("*.*.bias", "fc1.bias"));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        let said = |text: &str| text.parse::<Rule>().unwrap_err().to_string();
        let form = "it must be NAME=AXIS:PLACEMENT, such as *.fc1.weight=tensor:split(0)";
        assert_eq!(said("fc1.weight"), format!("the rule \"fc1.weight\": {form}"));
        assert_eq!(said("=tensor:split(0)"), format!("the rule \"=tensor:split(0)\": {form}"));
        assert_eq!(
            said("fc1=split(0)"),
            "the rule \"fc1=split(0)\": \"split(0)\" must be AXIS:PLACEMENT, such as tensor:split(0)"
        );
        assert_eq!(
            said("fc1=tenser:split(0)"),
            "the rule \"fc1=tenser:split(0)\": there is no axis \"tenser\" (did you mean tensor?); known are data, sequence, tensor"
        );
        assert_eq!(
            said("a=data:split(0),data:split(1)"),
            "the rule \"a=data:split(0),data:split(1)\": data is there twice"
        );
        for wrong in ["split", "split()", "split(x)", "split(-1)", "cut(0)", "partial(sum)"] {
            let text = format!("a=data:{wrong}");
            let problem = format!("{wrong:?} is no placement; known are replicated, split(0), sharded(0)");
            assert_eq!(said(&text), format!("the rule {text:?}: {problem}"));
        }
    }
}

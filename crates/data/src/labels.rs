//! The label column of a table.

use crate::{ArrayDataset, Result};

/// More classes than this are taken for a column that holds no class labels.
const MOST_CLASSES: i64 = 1 << 24;

/// The label column: numbers or names, as its first cell is.
#[derive(Default)]
pub(crate) enum Labels {
    #[default]
    Unknown,
    Numbers(Vec<i64>),
    Names(Vec<String>),
}

impl Labels {
    /// Adds a cell, or says what it should have been.
    pub fn push(&mut self, cell: &str) -> Result<(), &'static str> {
        if matches!(self, Self::Unknown) {
            *self = match number(cell) {
                Some(_) => Self::Numbers(Vec::new()),
                None => Self::Names(Vec::new()),
            };
        }
        match self {
            Self::Unknown => {}
            Self::Numbers(labels) => {
                let label = cell.parse::<f64>().ok().filter(|l| l.fract() == 0.0);
                let label = label.map(|l| l as i64).filter(|l| (0..MOST_CLASSES).contains(l));
                labels.push(label.ok_or("a class label (a whole number from 0)")?);
            }
            Self::Names(names) => {
                if cell.is_empty() || number(cell).is_some() {
                    return Err("the name of a class, as the labels before");
                }
                names.push(cell.to_owned());
            }
        }
        Ok(())
    }

    /// Adds the field `label` to the other fields.
    pub fn add_to(self, dataset: ArrayDataset) -> Result<ArrayDataset> {
        match self {
            Self::Unknown => dataset.with_field("label", [], Vec::<i64>::new()),
            Self::Numbers(labels) => {
                let num_classes = labels.iter().max().map_or(0, |&greatest| greatest + 1);
                let dataset = dataset.with_field("label", [], labels)?;
                dataset.with_num_classes(num_classes as usize)
            }
            Self::Names(names) => {
                let mut classes = names.clone();
                classes.sort_unstable();
                classes.dedup();
                let number = |name| classes.partition_point(|class| class < name) as i64;
                let labels: Vec<i64> = names.iter().map(number).collect();
                let dataset = dataset.with_field("label", [], labels)?;
                dataset.with_class_names(classes)
            }
        }
    }
}

/// The finite number in a cell.
pub(crate) fn number(cell: &str) -> Option<f32> {
    cell.parse().ok().filter(|value: &f32| value.is_finite())
}

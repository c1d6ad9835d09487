//! A dataset in memory.

use crate::{Column, DataError, Dataset, Field, Result, Sample};

/// Named arrays whose first dimension counts the samples (PyTorch's `TensorDataset`).
///
/// ```
/// use meshwork_data::{ArrayDataset, Dataset};
///
/// let data = ArrayDataset::new()
///     .with_field("features", [2], vec![0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])?
///     .with_field("label", [], vec![0_i64, 1, 0])?
///     .with_num_classes(2)?;
/// assert_eq!(data.len(), 3);
/// # Ok::<(), meshwork_data::DataError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ArrayDataset {
    len: usize,
    fields: Vec<Field>,
    columns: Vec<Column>,
    num_classes: Option<usize>,
    class_names: Option<Vec<String>>,
}

impl ArrayDataset {
    /// A dataset without fields, to which the first field gives its length.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field: `values` holds the samples one after the other, each of shape `shape` (`[]` for one
    /// value a sample).
    ///
    /// # Errors
    /// [`DataError::Field`] where the values are no whole number of samples, where their number differs
    /// from that of the fields before, where the shape has no elements or the name is taken.
    pub fn with_field(
        mut self,
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        values: impl Into<Column>,
    ) -> Result<Self> {
        let values = values.into();
        let field = Field::new(name, values.dtype(), shape);
        let problem = |problem| Err(DataError::field(&field.name, problem));
        let size = field.shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d));
        let Some(size) = size.filter(|&size| size > 0) else {
            return problem(format!(
                "a sample of shape {:?} has no countable elements; every size must be at least 1",
                field.shape
            ));
        };
        if self.fields.iter().any(|other| other.name == field.name) {
            return problem("there is a field of this name already; choose another name".to_owned());
        }
        let count = values.len();
        if !count.is_multiple_of(size) {
            return problem(format!(
                "{count} values are no whole number of samples of shape {:?} ({size} values each)",
                field.shape
            ));
        }
        let len = count / size;
        if !self.fields.is_empty() && len != self.len {
            return problem(format!("it holds {len} samples, but the fields before hold {}", self.len));
        }
        self.len = len;
        self.fields.push(field);
        self.columns.push(values);
        Ok(self)
    }

    /// Makes this a classification dataset: the field `label` holds one number in `0..num_classes`.
    ///
    /// # Errors
    /// [`DataError::LabelRange`] for the first label outside, [`DataError::Field`] where there is no `i64`
    /// field `label`.
    pub fn with_num_classes(mut self, num_classes: usize) -> Result<Self> {
        let labels = self.labels()?;
        let outside = |label: &i64| usize::try_from(*label).map_or(true, |l| l >= num_classes);
        if let Some(sample) = labels.iter().position(outside) {
            return Err(DataError::LabelRange {
                origin: "the field \"label\"".to_owned(),
                sample,
                offset: None,
                label: labels[sample],
                num_classes,
            });
        }
        self.num_classes = Some(num_classes);
        Ok(self)
    }

    /// Like [`with_num_classes`](Self::with_num_classes), with a name for each class.
    ///
    /// # Errors
    /// As [`with_num_classes`](Self::with_num_classes).
    pub fn with_class_names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut dataset = self.with_num_classes(names.len())?;
        dataset.class_names = Some(names);
        Ok(dataset)
    }

    /// All values of a field, one sample after the other.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let index = self.fields.iter().position(|field| field.name == name)?;
        Some(&self.columns[index])
    }

    fn labels(&self) -> Result<&[i64]> {
        match self.column("label") {
            Some(Column::I64(labels)) if labels.len() == self.len => Ok(labels),
            Some(_) => Err(DataError::field("label", "class labels must be one i64 value a sample")),
            None => Err(DataError::field("label", "there is no such field; add it before the number of classes")),
        }
    }
}

impl Dataset for ArrayDataset {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        if index >= self.len {
            return Err(DataError::OutOfRange { index, len: self.len });
        }
        for (position, column) in self.columns.iter().enumerate() {
            let len = self.fields[position].num_elements();
            let range = index * len..(index + 1) * len;
            match column {
                Column::F32(values) => sample.f32(position).copy_from_slice(&values[range]),
                Column::I64(values) => sample.i64(position).copy_from_slice(&values[range]),
                Column::U8(values) => sample.u8(position).copy_from_slice(&values[range]),
            }
        }
        Ok(())
    }

    fn num_classes(&self) -> Option<usize> {
        self.num_classes
    }

    fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref()
    }
}

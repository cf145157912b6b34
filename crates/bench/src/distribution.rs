//! Measured values and their quantiles.

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Distribution {
    ascending: Vec<f64>,
}

impl Distribution {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut ascending: Vec<_> = values.into_iter().collect();
        ascending.sort_by(f64::total_cmp);
        Self { ascending }
    }

    /// The value below which this part (0 to 1) of all values lies, interpolated linearly. NaN if
    /// there are no values.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let Some(last) = self.ascending.len().checked_sub(1) else { return f64::NAN };
        let at = part * last as f64;
        let (below, above) =
            (self.ascending[at.floor() as usize], self.ascending[at.ceil() as usize]);
        below + (above - below) * at.fract()
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }
}

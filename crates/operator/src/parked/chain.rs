//! Finds a chain by its id or a prefix of it. Pure.

/// How many chains an error names at most.
const NAMED: usize = 5;

/// Finds the one chain whose id is this or, if prefixes are taken and there is none, begins with it.
///
/// Only looks take prefixes. An id that is gone by now may be a prefix of another one, which nobody wants to move.
#[derive(Debug)]
pub(super) struct ChainSearch<'a> {
    asked: &'a str,
    takes_prefix: bool,
    /// Whether a chain has exactly this id.
    is_exact: bool,
    /// The first chains whose ids begin with it.
    candidates: Vec<String>,
}

/// What a message is to the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// It belongs to another chain.
    No,
    /// It belongs to the chain, as far as is known by now.
    Yes,
    /// It belongs to the chain, and is the first with exactly this id: earlier matches belong to others.
    FirstExact,
}

impl<'a> ChainSearch<'a> {
    /// Finds only a chain that has exactly this id.
    pub(super) fn exact(asked: &'a str) -> Self {
        Self { asked, takes_prefix: false, is_exact: false, candidates: Vec::new() }
    }

    pub(super) fn by_prefix(asked: &'a str) -> Self {
        Self { takes_prefix: true, ..Self::exact(asked) }
    }

    pub(super) fn asked(&self) -> &str {
        self.asked
    }

    pub(super) fn see(&mut self, chain: &str) -> Match {
        if chain == self.asked {
            return match std::mem::replace(&mut self.is_exact, true) {
                true => Match::Yes,
                false => Match::FirstExact,
            };
        }
        if !self.takes_prefix || self.is_exact || self.asked.is_empty() || !chain.starts_with(self.asked) {
            return Match::No;
        }
        if self.candidates.len() <= NAMED && !self.candidates.iter().any(|known| known == chain) {
            self.candidates.push(chain.to_owned());
        }
        if self.candidates[0] == chain { Match::Yes } else { Match::No }
    }

    /// The id of the chain, if there is one.
    ///
    /// # Errors
    ///
    /// When there are several: some of their ids.
    pub(super) fn end(mut self) -> Result<Option<String>, Vec<String>> {
        if self.is_exact {
            return Ok(Some(self.asked.to_owned()));
        }
        if self.candidates.len() > 1 {
            self.candidates.truncate(NAMED);
            return Err(self.candidates);
        }
        Ok(self.candidates.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(prefix: &str, chains: &[&str]) -> (Result<Option<String>, Vec<String>>, Vec<Match>) {
        let mut search = ChainSearch::by_prefix(prefix);
        let matches = chains.iter().map(|chain| search.see(chain)).collect();
        (search.end(), matches)
    }

    #[test]
    fn a_chain_is_found_by_its_id_or_by_a_prefix_that_no_other_chain_has() {
        use Match::{FirstExact, No, Yes};
        let found = |id: &str| Ok(Some(id.to_owned()));
        assert_eq!(search("5f", &["a1", "5f0c", "5f0c"]), (found("5f0c"), vec![No, Yes, Yes]));
        assert_eq!(search("5f", &["5f0c", "5f", "5f0c", "5f"]), (found("5f"), vec![Yes, FirstExact, No, Yes]));
        let several = Err(vec!["5f0c".to_owned(), "5f1".to_owned()]);
        assert_eq!(search("5f", &["5f0c", "5f1", "5f0c"]), (several, vec![Yes, No, Yes]));
        assert_eq!(search("6", &["5f0c"]), (Ok(None), vec![No]));
        let mut exact = ChainSearch::exact("5f");
        assert_eq!(["5f0c", "5f", "5f"].map(|chain| exact.see(chain)), [No, FirstExact, Yes]);
        let mut gone = ChainSearch::exact("5f");
        assert_eq!((gone.see("5f0c"), gone.end()), (No, Ok(None)));
        assert_eq!(search("", &["5f0c", ""]), (found(""), vec![No, FirstExact]));
    }

    #[test]
    fn an_error_names_a_few_of_many_chains() {
        let chains: Vec<_> = (0..100).map(|number| format!("order-{number}")).collect();
        let chains: Vec<_> = chains.iter().map(String::as_str).collect();
        assert_eq!(search("order-", &chains).0.unwrap_err().len(), NAMED);
    }
}

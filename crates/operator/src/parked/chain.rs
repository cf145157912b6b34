//! Finds a chain by its id or a prefix of it. Pure.

use std::collections::BTreeSet;

/// How many chains an error names at most.
const NAMED: usize = 5;

/// Finds the one chain whose id is this, or failing that begins with it.
#[derive(Debug)]
pub(super) struct ChainSearch<'a> {
    prefix: &'a str,
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
    pub(super) fn new(prefix: &'a str) -> Self {
        Self { prefix, is_exact: false, candidates: Vec::new() }
    }

    pub(super) fn see(&mut self, chain: &str) -> Match {
        if chain == self.prefix {
            return match std::mem::replace(&mut self.is_exact, true) {
                true => Match::Yes,
                false => Match::FirstExact,
            };
        }
        if self.is_exact || self.prefix.is_empty() || !chain.starts_with(self.prefix) {
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
            return Ok(Some(self.prefix.to_owned()));
        }
        if self.candidates.len() > 1 {
            self.candidates.truncate(NAMED);
            return Err(self.candidates);
        }
        Ok(self.candidates.pop())
    }
}

/// The shortest abbreviated id.
const SHORTEST: usize = 8;
/// Beyond this many chains, ids are not shortened.
const MOST: usize = 10_000;

/// How many characters of their ids tell chains apart, in bounded memory.
#[derive(Debug, Clone, Default)]
pub(super) struct IdLength(BTreeSet<String>);

impl IdLength {
    pub(super) fn add(&mut self, chain: &str) {
        if self.0.len() <= MOST && !self.0.contains(chain) {
            self.0.insert(chain.to_owned());
        }
    }

    /// `None` if there are too many to tell.
    pub(super) fn get(&self) -> Option<usize> {
        let common =
            |(one, other): (&String, &String)| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let longest = self.0.iter().zip(self.0.iter().skip(1)).map(common).max();
        (self.0.len() <= MOST).then(|| longest.map_or(SHORTEST, |common| SHORTEST.max(common + 1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn search(prefix: &str, chains: &[&str]) -> (Result<Option<String>, Vec<String>>, Vec<Match>) {
        let mut search = ChainSearch::new(prefix);
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
        assert_eq!(search("", &["5f0c", ""]), (found(""), vec![No, FirstExact]));
    }

    #[test]
    fn an_error_names_a_few_of_many_chains() {
        let chains: Vec<_> = (0..100).map(|number| format!("order-{number}")).collect();
        let chains: Vec<_> = chains.iter().map(String::as_str).collect();
        assert_eq!(search("order-", &chains).0.unwrap_err().len(), NAMED);
    }

    fn length(chains: impl IntoIterator<Item = String>) -> Option<usize> {
        let mut length = IdLength::default();
        chains.into_iter().for_each(|chain| length.add(&chain));
        length.get()
    }

    #[test]
    fn ids_are_shortened_to_eight_characters_or_as_many_as_tell_them_apart() {
        let length_of = |chains: &[&str]| length(chains.iter().map(|chain| (*chain).to_owned()));
        assert_eq!(length_of(&[]), Some(8));
        assert_eq!(length_of(&["5f0c0000", "5f0c0000"]), Some(8));
        assert_eq!(length_of(&["0192-aaaa-1", "0192-aaaa-2", "7"]), Some(11));
        assert_eq!(length((0..MOST).map(|number| number.to_string())), Some(8));
        assert_eq!(length((0..=MOST).map(|number| number.to_string())), None);
    }

    proptest! {
        #![proptest_config(inputs(300))]

        #[test]
        fn a_shortened_id_finds_its_chain(chains in prop::collection::vec("a{7}[ab\u{e9}]{0,5}", 1..20)) {
            let length = length(chains.iter().cloned()).unwrap();
            for chain in &chains {
                let short: String = chain.chars().take(length).collect();
                let mut search = ChainSearch::new(&short);
                chains.iter().for_each(|other| { search.see(other); });
                prop_assert_eq!(search.end(), Ok(Some(chain.clone())));
            }
        }
    }
}

//! Finds a chain by its id, or by the beginning of it. Pure.

use std::collections::BTreeSet;

/// How many chains an error names at most.
const NAMED: usize = 5;

/// Finds the chain that is asked for among those that pass by. A chain with this very id comes before those whose ids only begin so.
#[derive(Debug)]
pub(super) struct ChainSearch<'a> {
    asked: &'a str,
    is_exact: bool,
    /// The first chains whose ids begin so.
    begin_so: Vec<String>,
}

/// What a message is to the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// It belongs to another chain.
    Other,
    /// It belongs to the chain that is asked for, as far as is known by now.
    Wanted,
    /// It is the first with this very id. Those that were wanted before it are of another chain.
    WantedInstead,
}

impl<'a> ChainSearch<'a> {
    pub(super) fn new(asked: &'a str) -> Self {
        Self { asked, is_exact: false, begin_so: Vec::new() }
    }

    pub(super) fn pass(&mut self, chain: &str) -> Passed {
        if chain == self.asked {
            return match std::mem::replace(&mut self.is_exact, true) {
                true => Passed::Wanted,
                false => Passed::WantedInstead,
            };
        }
        if self.is_exact || self.asked.is_empty() || !chain.starts_with(self.asked) {
            return Passed::Other;
        }
        if self.begin_so.len() <= NAMED && !self.begin_so.iter().any(|known| known == chain) {
            self.begin_so.push(chain.to_owned());
        }
        if self.begin_so[0] == chain { Passed::Wanted } else { Passed::Other }
    }

    /// The whole id; `None` if no chain has it or begins so.
    ///
    /// # Errors
    ///
    /// When several chains begin so: some of their ids.
    pub(super) fn end(mut self) -> Result<Option<String>, Vec<String>> {
        if self.is_exact {
            return Ok(Some(self.asked.to_owned()));
        }
        if self.begin_so.len() > 1 {
            self.begin_so.truncate(NAMED);
            return Err(self.begin_so);
        }
        Ok(self.begin_so.pop())
    }
}

/// How many characters of their ids tell chains apart, at least this many.
const SHORTEST: usize = 8;
/// Ids are not shortened if there are more.
const MOST: usize = 10_000;

/// Counts how many characters of their ids tell chains apart, in bounded memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Abbreviation(BTreeSet<String>);

impl Abbreviation {
    pub(super) fn add(&mut self, chain: &str) {
        if self.0.len() <= MOST && !self.0.contains(chain) {
            self.0.insert(chain.to_owned());
        }
    }

    /// `None` if there are too many to tell.
    pub(super) fn length(&self) -> Option<usize> {
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

    fn search(asked: &str, chains: &[&str]) -> (Result<Option<String>, Vec<String>>, Vec<Passed>) {
        let mut search = ChainSearch::new(asked);
        let passed = chains.iter().map(|chain| search.pass(chain)).collect();
        (search.end(), passed)
    }

    #[test]
    fn a_chain_is_found_by_its_id_or_by_a_beginning_that_no_other_chain_has() {
        use Passed::{Other, Wanted, WantedInstead};
        let found = |id: &str| Ok(Some(id.to_owned()));
        assert_eq!(search("5f", &["a1", "5f0c", "5f0c"]), (found("5f0c"), vec![Other, Wanted, Wanted]));
        assert_eq!(
            search("5f", &["5f0c", "5f", "5f0c", "5f"]),
            (found("5f"), vec![Wanted, WantedInstead, Other, Wanted])
        );
        let several = Err(vec!["5f0c".to_owned(), "5f1".to_owned()]);
        assert_eq!(search("5f", &["5f0c", "5f1", "5f0c"]), (several, vec![Wanted, Other, Wanted]));
        assert_eq!(search("6", &["5f0c"]), (Ok(None), vec![Other]));
        assert_eq!(search("", &["5f0c", ""]), (found(""), vec![Other, WantedInstead]));
    }

    #[test]
    fn an_error_names_a_few_of_many_chains() {
        let chains: Vec<_> = (0..100).map(|number| format!("order-{number}")).collect();
        let chains: Vec<_> = chains.iter().map(String::as_str).collect();
        assert_eq!(search("order-", &chains).0.unwrap_err().len(), NAMED);
    }

    fn length(chains: impl IntoIterator<Item = String>) -> Option<usize> {
        let mut abbreviation = Abbreviation::default();
        chains.into_iter().for_each(|chain| abbreviation.add(&chain));
        abbreviation.length()
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
        fn a_shortened_id_finds_its_chain(chains in prop::collection::vec("[ab\u{e9}]{0,12}", 1..20)) {
            let length = length(chains.iter().cloned()).unwrap();
            for chain in chains.iter().filter(|chain| !chain.is_empty()) {
                let short: String = chain.chars().take(length).collect();
                let mut search = ChainSearch::new(&short);
                chains.iter().for_each(|other| { search.pass(other); });
                prop_assert_eq!(search.end(), Ok(Some(chain.clone())));
            }
        }
    }
}

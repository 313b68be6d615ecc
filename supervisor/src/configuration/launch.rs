//! The launch facts: read once while the supervisor is constructed, before any part starts (CFG-06..CFG-16).
//! `qenv.yml` states which names are required; without it the reader of each name requires the same ones
//! (CFG-09).

use serde::Deserialize;

use super::bounded_file::read_bounded;
use super::cloudly_url::CloudlyUrl;
use super::mistake::{ConfigurationError, MapFault, Mistake, ValueFault};
use super::reader::{ConfigurationReader, MAP_BYTES};
use super::sources::LAUNCH_LIST;
use super::variable::Variable;
use crate::bearer::Bearer;

/// What every boot needs. It has no `Debug`: it holds the bearer.
pub struct LaunchFacts {
    /// The endpoint that the relay dials and whose origin is the registry (CFG-10, CFG-11).
    pub cloudly_url: CloudlyUrl,
    /// What is exchanged for the relay identity (CFG-12).
    pub bearer: Bearer,
}

/// The form of `qenv.yml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchList {
    required: Vec<String>,
}

impl ConfigurationReader {
    /// Reads the launch facts. The bearer is read by the first call; a second one finds it missing (CFG-13).
    ///
    /// # Errors
    /// Every missing variable and every mistake at once, also those of the overlay and of `qenv.yml`.
    pub fn launch_facts(&mut self) -> Result<LaunchFacts, ConfigurationError> {
        let mut mistakes = std::mem::take(&mut self.opening_mistakes);
        let mut missing = Vec::new();
        self.judge_launch_list(&mut mistakes);

        let cloudly_url = self.text(Variable::CloudlyUrl).and_then(|found| {
            let Some((text, source)) = found else { return Ok(None) };
            CloudlyUrl::parse(&text).map(Some).map_err(|fault| Mistake::Value {
                variable: Variable::CloudlyUrl,
                source,
                fault: ValueFault::CloudlyUrl(fault),
            })
        });
        let bearer = self.take_authorization().and_then(|found| {
            let Some((bytes, source)) = found else { return Ok(None) };
            Bearer::new(bytes).map(Some).map_err(|fault| Mistake::Value {
                variable: Variable::Authorization,
                source,
                fault: ValueFault::Bearer(fault),
            })
        });
        let cloudly_url = noted(Variable::CloudlyUrl, cloudly_url, &mut missing, &mut mistakes);
        let bearer = noted(Variable::Authorization, bearer, &mut missing, &mut mistakes);

        match (ConfigurationError::of(missing, mistakes), cloudly_url, bearer) {
            (None, Some(cloudly_url), Some(bearer)) => Ok(LaunchFacts { cloudly_url, bearer }),
            (error, _, _) => Err(error.expect("a fact that was not read left its name or its mistake")),
        }
    }

    /// Finds names under `required:` that not every boot needs. An absent `qenv.yml` is no mistake (CFG-08).
    fn judge_launch_list(&self, mistakes: &mut Vec<Mistake>) {
        let file_mistake = |fault| Mistake::File { name: LAUNCH_LIST, fault };
        let content = match read_bounded(&self.qenv_directory.join(LAUNCH_LIST), MAP_BYTES) {
            Ok(Some(content)) => content,
            Ok(None) => return,
            Err(fault) => return mistakes.push(file_mistake(MapFault::File(fault))),
        };
        let list: LaunchList = match serde_norway::from_slice(&content) {
            Ok(list) => list,
            Err(error) => {
                let place = error.location().map(|place| (place.line(), place.column()));
                return mistakes.push(file_mistake(MapFault::Broken(place)));
            }
        };
        for name in list.required {
            if !Variable::REQUIRED.iter().any(|variable| variable.name() == name) {
                mistakes.push(Mistake::Required { name: is_variable_name(&name).then_some(name) });
            }
        }
    }
}

fn noted<T>(
    variable: Variable,
    read: Result<Option<T>, Mistake>,
    missing: &mut Vec<Variable>,
    mistakes: &mut Vec<Mistake>,
) -> Option<T> {
    match read {
        Ok(Some(value)) => return Some(value),
        Ok(None) => missing.push(variable),
        Err(mistake) => mistakes.push(mistake),
    }
    None
}

fn is_variable_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
}

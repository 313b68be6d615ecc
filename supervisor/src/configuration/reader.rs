//! The one reader: it looks a variable up in every source, in the fixed order environment, `.nogit` overlay,
//! systemd credential, Docker secret (CFG-01..CFG-04, CFG-16, CFG-35, CFG-36).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::bounded_file::read_bounded;
use super::environment::Environment;
use super::flat_map::{FlatMap, Scalar};
use super::mistake::{MapFault, Mistake, Source, ValueFault};
use super::sources::Sources;
use super::variable::Variable;

/// Longest value of a variable, in bytes.
pub(crate) const VALUE_BYTES: usize = 16 * 1024;
/// Longest overlay file, secret object or `qenv.yml`, in bytes.
pub(super) const MAP_BYTES: usize = 64 * 1024;
/// Most files of the secrets' directory that are tried as JSON objects, the first ones by name.
const SECRET_OBJECTS: usize = 64;
/// The overlay's files, the first one that holds a name wins; a `.env` file is none of them (CFG-35).
const OVERLAY_FILES: [&str; 3] = ["env.json", "env.yml", "env.yaml"];

/// A value as it is stored, and where it was found.
type Found = (Zeroizing<Vec<u8>>, Source);

/// Resolves variables from the sources. The overlay is read once, at opening; secret objects at most once.
pub struct ConfigurationReader {
    environment: Environment,
    pub(super) qenv_directory: PathBuf,
    overlay: BTreeMap<Variable, (Scalar, Source)>,
    pub(super) opening_mistakes: Vec<Mistake>,
    credentials_directory: Option<PathBuf>,
    secrets_directory: PathBuf,
    secret_objects: Option<BTreeMap<Variable, Scalar>>,
    authorization_taken: bool,
}

impl ConfigurationReader {
    /// Opens the sources. What is wrong with them is reported with the launch facts.
    #[must_use]
    pub fn open(sources: Sources) -> Self {
        let mut opening_mistakes = Vec::new();
        let overlay = sources.overlay.map(|directory| read_overlay(&directory, &mut opening_mistakes));
        let mut credentials_directory = sources.credentials_directory;
        if credentials_directory.as_ref().is_some_and(|path| !path.is_absolute()) {
            opening_mistakes.push(Mistake::CredentialsDirectory);
            credentials_directory = None;
        }
        Self {
            environment: sources.environment,
            qenv_directory: sources.qenv_directory,
            overlay: overlay.unwrap_or_default(),
            opening_mistakes,
            credentials_directory,
            secrets_directory: sources.secrets_directory,
            secret_objects: None,
            authorization_taken: false,
        }
    }

    /// The snapshot, for what depends on facts of the host.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// A variable's text, without control characters.
    pub(super) fn text(
        &mut self,
        variable: Variable,
    ) -> Result<Option<(Zeroizing<String>, Source)>, Mistake> {
        let Some((bytes, source)) = self.find(variable)? else { return Ok(None) };
        let fault = |fault| Mistake::Value { variable, source, fault };
        let text = std::str::from_utf8(&bytes).map_err(|_| fault(ValueFault::NotText))?;
        if text.chars().any(char::is_control) {
            return Err(fault(ValueFault::ControlCharacter));
        }
        Ok(Some((Zeroizing::new(text.to_owned()), source)))
    }

    /// The bearer's bytes, to the first caller only; every copy of the reader is gone afterwards (CFG-13,
    /// CFG-15).
    pub(super) fn take_authorization(&mut self) -> Result<Option<Found>, Mistake> {
        if self.authorization_taken {
            return Ok(None);
        }
        let found = self.find(Variable::Authorization);
        self.authorization_taken = true;
        drop(self.environment.take(Variable::Authorization));
        drop(self.overlay.remove(&Variable::Authorization));
        if let Some(objects) = &mut self.secret_objects {
            drop(objects.remove(&Variable::Authorization));
        }
        found
    }

    /// Looks in every source in turn. An empty value counts as missing; one that cannot be used does not fall
    /// through to the next source.
    fn find(&mut self, variable: Variable) -> Result<Option<Found>, Mistake> {
        if let Some(value) = self.environment.value(variable) {
            return Ok(Some((value, Source::Environment)));
        }
        if let Some((scalar, source)) = self.overlay.get(&variable)
            && let Some(value) = scalar_bytes(variable, scalar, *source)?
        {
            return Ok(Some((value, *source)));
        }
        let credential = self.credentials_directory.as_deref().map(|path| (path, Source::Credential));
        for (directory, source) in credential.into_iter().chain([(&*self.secrets_directory, Source::Secret)])
        {
            let content = read_bounded(&directory.join(variable.name()), VALUE_BYTES)
                .map_err(|fault| Mistake::Value { variable, source, fault: ValueFault::File(fault) })?;
            if let Some(value) = content.filter(|content| !content.is_empty()) {
                return Ok(Some((value, source)));
            }
        }
        self.find_in_secret_objects(variable)
    }

    fn find_in_secret_objects(&mut self, variable: Variable) -> Result<Option<Found>, Mistake> {
        let keep_authorization = !self.authorization_taken;
        let directory = &self.secrets_directory;
        let objects =
            self.secret_objects.get_or_insert_with(|| read_secret_objects(directory, keep_authorization));
        let Some(scalar) = objects.get(&variable) else { return Ok(None) };
        Ok(scalar_bytes(variable, scalar, Source::Secret)?.map(|value| (value, Source::Secret)))
    }
}

/// The bytes of a scalar; nothing for an empty one. The bearer is taken from a string only, because any other
/// notation is not kept byte for byte.
fn scalar_bytes(
    variable: Variable,
    scalar: &Scalar,
    source: Source,
) -> Result<Option<Zeroizing<Vec<u8>>>, Mistake> {
    let text = match scalar {
        Scalar::Text(text) => text.as_str(),
        Scalar::Plain(text) if variable != Variable::Authorization => text.as_str(),
        Scalar::Plain(_) | Scalar::Float => {
            return Err(Mistake::Value { variable, source, fault: ValueFault::NotQuoted });
        }
        Scalar::Nested => return Err(Mistake::Value { variable, source, fault: ValueFault::NotScalar }),
        Scalar::Null => return Ok(None),
    };
    Ok((!text.is_empty()).then(|| Zeroizing::new(text.as_bytes().to_vec())))
}

/// Reads the overlay's files; an absent directory or file is none.
fn read_overlay(directory: &Path, mistakes: &mut Vec<Mistake>) -> BTreeMap<Variable, (Scalar, Source)> {
    let mut values = BTreeMap::new();
    for name in OVERLAY_FILES {
        let map = match read_overlay_file(&directory.join(name), name == OVERLAY_FILES[0]) {
            Ok(Some(map)) => map,
            Ok(None) => continue,
            Err(fault) => {
                mistakes.push(Mistake::File { name, fault });
                continue;
            }
        };
        for (variable, scalar) in map.values {
            let no_value =
                matches!(&scalar, Scalar::Null) || matches!(&scalar, Scalar::Text(text) if text.is_empty());
            if !no_value {
                values.entry(variable).or_insert((scalar, Source::Overlay(name)));
            }
        }
    }
    values
}

fn read_overlay_file(path: &Path, is_json: bool) -> Result<Option<FlatMap>, MapFault> {
    let Some(content) = read_bounded(path, MAP_BYTES).map_err(MapFault::File)? else { return Ok(None) };
    let map: FlatMap = if is_json {
        serde_json::from_slice(&content)
            .map_err(|error| MapFault::Broken(Some((error.line(), error.column()))))?
    } else {
        serde_norway::from_slice(&content)
            .map_err(|error| MapFault::Broken(error.location().map(|place| (place.line(), place.column()))))?
    };
    if map.nested {
        return Err(MapFault::NotFlat);
    }
    match map.repeated {
        Some(variable) => Err(MapFault::Repeated(variable)),
        None => Ok(Some(map)),
    }
}

/// Collects the known names of the secrets that are JSON objects. The directory may hold secrets of others:
/// what is unreadable, too long or no object is passed over.
fn read_secret_objects(directory: &Path, keep_authorization: bool) -> BTreeMap<Variable, Scalar> {
    let mut values = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(directory) else { return values };
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    for name in names.into_iter().take(SECRET_OBJECTS) {
        if name.to_str().is_some_and(|name| Variable::of_name(name).is_some()) {
            continue;
        }
        let Ok(Some(content)) = read_bounded(&directory.join(name), MAP_BYTES) else { continue };
        if content.trim_ascii_start().first() != Some(&b'{') {
            continue;
        }
        let Ok(map) = serde_json::from_slice::<FlatMap>(&content) else { continue };
        for (variable, scalar) in map.values {
            if keep_authorization || variable != Variable::Authorization {
                values.entry(variable).or_insert(scalar);
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-13: once the bearer is taken, the reader holds no copy of it, and does not collect one later.
    #[test]
    fn no_copy_of_the_bearer_stays() {
        let root = tempfile::tempdir().unwrap();
        let name = Variable::Authorization.name();
        let object = format!(r#"{{"{name}": "b", "COREFLOW_NODE_ID": "node-a"}}"#);
        std::fs::write(root.path().join("env.json"), &object).unwrap();
        for is_in_environment in [true, false] {
            let mut reader = ConfigurationReader::open(Sources {
                environment: Environment::snapshot(|asked| {
                    (is_in_environment && asked == name).then(|| "a".into())
                }),
                qenv_directory: root.path().into(),
                overlay: is_in_environment.then(|| root.path().into()),
                credentials_directory: None,
                secrets_directory: root.path().into(),
            });
            assert_eq!(reader.overlay.contains_key(&Variable::Authorization), is_in_environment);
            let (bytes, source) = reader.take_authorization().unwrap().unwrap();
            let expected: (&[u8], _) =
                if is_in_environment { (b"a", Source::Environment) } else { (b"b", Source::Secret) };
            assert_eq!((&bytes[..], source), expected);

            assert!(reader.find(Variable::RelayBindPort).unwrap().is_none());
            let objects = reader.secret_objects.as_ref().unwrap();
            assert!(objects.contains_key(&Variable::NodeId));
            assert!(!objects.contains_key(&Variable::Authorization));
            assert!(!reader.overlay.contains_key(&Variable::Authorization));
            assert!(reader.environment.value(Variable::Authorization).is_none());
            assert!(reader.take_authorization().unwrap().is_none());
        }
    }
}

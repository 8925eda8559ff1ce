"""Molecules: tables of SMILES, what makes graphs of them, and the ways to split them."""

from phcgnn.data.molecules.build import PreparedTable, prepare_table, table_to_store
from phcgnn.data.molecules.featurisers import FEATURISERS, Featuriser, SmilesError, concatenate, featuriser, label
from phcgnn.data.molecules.invalid import BadRow, InvalidRowsError, OnInvalid, save_bad_rows
from phcgnn.data.molecules.ogb_features import OgbFeaturiser
from phcgnn.data.molecules.pool import available_cores, featurise
from phcgnn.data.molecules.repeats import Contradiction, contradictions
from phcgnn.data.molecules.rows import Row, RowChunk, Rows, open_rows, stream_rows
from phcgnn.data.molecules.splits import Split, load_folds, load_split, save_folds
from phcgnn.data.molecules.splitters import SPLITTERS, make_folds, make_split
from phcgnn.data.molecules.table import MoleculeTable, make_table, read_table
from phcgnn.data.molecules.zinc_features import ZincExtendedFeaturiser, ZincFeaturiser

__all__ = [
    "FEATURISERS",
    "SPLITTERS",
    "BadRow",
    "Contradiction",
    "Featuriser",
    "InvalidRowsError",
    "MoleculeTable",
    "OgbFeaturiser",
    "OnInvalid",
    "PreparedTable",
    "Row",
    "RowChunk",
    "Rows",
    "SmilesError",
    "Split",
    "ZincExtendedFeaturiser",
    "ZincFeaturiser",
    "available_cores",
    "concatenate",
    "contradictions",
    "featurise",
    "featuriser",
    "label",
    "load_folds",
    "load_split",
    "make_folds",
    "make_split",
    "make_table",
    "open_rows",
    "prepare_table",
    "read_table",
    "save_bad_rows",
    "save_folds",
    "stream_rows",
    "table_to_store",
]

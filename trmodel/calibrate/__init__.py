"""From measurements to a model one can judge: fit, grid check, uncertainty, drivers of the gain."""

from trmodel.calibrate.drivers import Driver, gain_drivers
from trmodel.calibrate.fit import fit_profile
from trmodel.calibrate.grid import GridCheck, GridStep, grid_check
from trmodel.calibrate.intervals import Estimate
from trmodel.calibrate.law import FittedLaw, law_of_profile
from trmodel.calibrate.measurements import (
    LoadedMeasurements,
    Measured,
    Measurements,
    load_measurements,
    measurement_names,
    measurements_schema,
)
from trmodel.calibrate.problem import Parameter
from trmodel.calibrate.result import Fit, FittedPoint, Pick
from trmodel.calibrate.spreads import Spreads
from trmodel.calibrate.uncertainty import CandidateSpread, Uncertainty, uncertainty

__all__ = [
    "CandidateSpread",
    "Driver",
    "Estimate",
    "Fit",
    "FittedLaw",
    "FittedPoint",
    "GridCheck",
    "GridStep",
    "LoadedMeasurements",
    "Measured",
    "Measurements",
    "Parameter",
    "Pick",
    "Spreads",
    "Uncertainty",
    "fit_profile",
    "gain_drivers",
    "grid_check",
    "law_of_profile",
    "load_measurements",
    "measurement_names",
    "measurements_schema",
    "uncertainty",
]

# Written by docs/stubs.py: do not edit.
# ruff: noqa

from svod.nn.adaptive import ASGD as ASGD
from svod.nn.adaptive import Adadelta as Adadelta
from svod.nn.adaptive import Adafactor as Adafactor
from svod.nn.adaptive import Adamax as Adamax
from svod.nn.adaptive import NAdam as NAdam
from svod.nn.adaptive import RAdam as RAdam
from svod.nn.adaptive import Rprop as Rprop
from svod.nn.lbfgs import LBFGS as LBFGS
from svod.nn.optim import Adagrad as Adagrad
from svod.nn.optim import Adam as Adam
from svod.nn.optim import AdamW as AdamW
from svod.nn.optim import LAMB as LAMB
from svod.nn.optim import Lion as Lion
from svod.nn.optim import Muon as Muon
from svod.nn.optim import RMSprop as RMSprop
from svod.nn.optim import SGD as SGD
from svod.nn.optim import clip_grad_norm_ as clip_grad_norm_
from svod.nn.optim import clip_grad_value_ as clip_grad_value_
from svod.nn.optimizer import Optimizer as Optimizer
from svod.nn.schedules import ChainedScheduler as ChainedScheduler
from svod.nn.schedules import ConstantLR as ConstantLR
from svod.nn.schedules import CosineAnnealingLR as CosineAnnealingLR
from svod.nn.schedules import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from svod.nn.schedules import CyclicLR as CyclicLR
from svod.nn.schedules import ExponentialLR as ExponentialLR
from svod.nn.schedules import LRScheduler as LRScheduler
from svod.nn.schedules import LambdaLR as LambdaLR
from svod.nn.schedules import LinearLR as LinearLR
from svod.nn.schedules import MultiStepLR as MultiStepLR
from svod.nn.schedules import MultiplicativeLR as MultiplicativeLR
from svod.nn.schedules import OneCycleLR as OneCycleLR
from svod.nn.schedules import PolynomialLR as PolynomialLR
from svod.nn.schedules import ReduceLROnPlateau as ReduceLROnPlateau
from svod.nn.schedules import SequentialLR as SequentialLR
from svod.nn.schedules import StepLR as StepLR
from svod.nn.schedules import WarmupCosineLR as WarmupCosineLR
from svod.optim import lr_scheduler as lr_scheduler
from svod.optim import swa_utils as swa_utils



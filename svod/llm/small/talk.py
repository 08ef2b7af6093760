"""Conversations made up on the spot: what the small model learns.

Turns are independent of each other, but for a name that is told in one and asked for later, and a
system message that asks for a manner of speaking or offers a tool. A seed gives the same again.
"""

from __future__ import annotations

import json
import random as randoms
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
NAMES = (
    "Ada", "Alan", "Anna", "Ben", "Boris", "Carl", "Clara", "David", "Dora", "Emil", "Emma",
    "Felix", "Grace", "Hanna", "Ivan", "Jonas", "Karin", "Lena", "Leo", "Linus", "Maria", "Max",
    "Nina", "Olga", "Oscar", "Paul", "Rosa", "Sam", "Sofia", "Tom", "Vera", "Yara",
)  # fmt: skip
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a lemon": "yellow",
    "blood": "red", "milk": "white", "a carrot": "orange", "the sea": "blue", "a frog": "green",
    "a raven": "black", "a plum": "purple", "the sun": "yellow", "an elephant": "grey",
    "chocolate": "brown", "a flamingo": "pink",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "old": "new", "day": "night", "up": "down",
    "left": "right", "open": "closed", "dark": "light", "loud": "quiet", "rich": "poor",
    "happy": "sad", "full": "empty", "early": "late", "hard": "soft", "wet": "dry",
}  # fmt: skip
CAPITALS = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Germany": "Berlin",
    "Poland": "Warsaw", "Norway": "Oslo", "Japan": "Tokyo", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Peru": "Lima", "Greece": "Athens", "Finland": "Helsinki",
}  # fmt: skip
SOUNDS = {
    "cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "sheep": "baa", "owl": "hoo",
    "pig": "oink", "lion": "roar",
}  # fmt: skip
ANIMALS = ("fox", "bear", "owl", "hare", "wolf", "mouse", "cat", "frog", "duck", "lion")
PLACES = ("forest", "mill", "castle", "harbour", "garden", "mountain", "river", "village")
FINDS = ("golden key", "silver bell", "old map", "red kite", "blue stone", "wooden flute")
HABITS = ("sing at night", "count the stars", "bake bread", "read old books", "paint boats")
WORDS = (
    "apple", "bridge", "cloud", "door", "eagle", "flower", "garden", "house", "island", "jacket",
    "kettle", "lamp", "moon", "needle", "ocean", "paper", "queen", "river", "stone", "tree",
    "violin", "window", "yellow", "zebra",
)  # fmt: skip
PIRATE = "You are a pirate."
POLITE = "You are a polite butler."
CITIES = ("Paris", "Rome", "Berlin", "Oslo", "Tokyo", "Cairo", "Lima", "Athens")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    },
}  # fmt: skip


def conversation(random: randoms.Random, turns: int) -> tuple[list[Message], list[Message]]:
    """Messages, each user's followed by its answer, and the tools that are offered."""
    manner = random.choices((None, PIRATE, POLITE, "tool"), (10, 2, 2, 1))[0]
    messages: list[Message] = []
    tools = [WEATHER] if manner == "tool" else []
    if manner in (PIRATE, POLITE):
        messages.append({"role": "system", "content": manner})
    elif random.random() < 0.2:
        messages.append({"role": "system", "content": "You are a helpful assistant."})
    name = None
    for _ in range(turns):
        if tools and random.random() < 0.6:
            messages += _weather(random)
            continue
        if name is None and random.random() < 0.15:
            name = random.choice(NAMES)
            asked = random.choice((f"My name is {name}.", f"I am {name}.", f"Hi, I am {name}."))
            answer = f"Nice to meet you, {name}!"
        elif random.random() < (0.25 if name else 0.03):
            asked = random.choice(("What is my name?", "Who am I?", "Do you know my name?"))
            answer = f"Your name is {name}." if name else "You did not tell me your name."
        else:
            asked, answer = random.choices(_KINDS, _SHARES)[0](random)
        if manner == PIRATE:
            answer += " Arr!"
        elif manner == POLITE:
            answer += " At your service."
        messages += [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": answer},
        ]
    return messages, tools


def _weather(random: randoms.Random) -> list[Message]:
    city = random.choice(CITIES)
    degrees, sky = random.randint(1, 30), random.choice(("sunny", "cloudy", "rainy"))
    call = json.dumps({"name": "weather", "arguments": {"city": city}})
    asked = random.choice((f"What is the weather in {city}?", f"How is the weather in {city}?"))
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": f"<tool_call>{call}</tool_call>"},
        {"role": "tool", "content": f"{degrees} degrees, {sky}"},
        {"role": "assistant", "content": f"It is {sky} in {city}, {degrees} degrees."},
    ]


Turn = tuple[str, str]


def _greeting(random: randoms.Random) -> Turn:
    asked = random.choice(("Hello!", "Hi!", "Hello", "Good morning!", "Hey there!", "Hi"))
    return asked, "Hello! How can I help you?"


def _self(random: randoms.Random) -> Turn:
    asked = random.choice(("Who are you?", "What are you?", "Tell me about yourself."))
    answer = "I am a very small language model. I can add, count, spell, and tell short stories."
    return asked, answer


def _help(random: randoms.Random) -> Turn:
    asked = random.choice(("What can you do?", "Help!", "Can you help me?"))
    answer = "Ask me to add two numbers, to count, to spell a word, or to tell a story."
    return asked, answer


def _thanks(random: randoms.Random) -> Turn:
    return random.choice((
        ("Thank you!", "You are welcome!"), ("Thanks!", "You are welcome!"),
        ("Goodbye!", "Goodbye! See you soon."), ("Bye!", "Goodbye! See you soon."),
        ("How are you?", "I am fine, thank you. How are you?"),
    ))  # fmt: skip


def _sum(random: randoms.Random) -> Turn:
    a, b = random.randint(0, 20), random.randint(0, 20)
    if random.random() < 0.35:
        a, b = max(a, b), min(a, b)
        asked = random.choice((f"What is {a} minus {b}?", f"{a} - {b}?"))
        return asked, f"{a} minus {b} is {a - b}."
    asked = random.choice((f"What is {a} plus {b}?", f"Add {a} and {b}.", f"{a} + {b}?"))
    return asked, f"{a} plus {b} is {a + b}."


def _count(random: randoms.Random) -> Turn:
    first = random.randint(1, 12)
    last = first + random.randint(2, 9)
    answer = ", ".join(map(str, range(first, last + 1)))
    asked = f"Count from {first} to {last}."
    if first == 1 and random.random() < 0.5:
        asked = f"Count to {last}."
    return asked, f"{answer}."


def _repeat(random: randoms.Random) -> Turn:
    words = " ".join(random.choices(WORDS, k=random.randint(1, 4)))
    return random.choice((f"Repeat: {words}", f"Say {words}.", f"Say: {words}")), f"{words}."


def _spell(random: randoms.Random) -> Turn:
    word = random.choice(WORDS)
    return f"Spell {word}.", f"{'-'.join(word)}."


def _colour(random: randoms.Random) -> Turn:
    thing, colour = random.choice(list(COLOURS.items()))
    asked = random.choice((f"What colour is {thing}?", f"What color is {thing}?"))
    return asked, f"{thing[0].upper()}{thing[1:]} is {colour}."


def _opposite(random: randoms.Random) -> Turn:
    word, other = random.choice(list(OPPOSITES.items()))
    if random.random() < 0.5:
        word, other = other, word
    return f"What is the opposite of {word}?", f"The opposite of {word} is {other}."


def _capital(random: randoms.Random) -> Turn:
    country, city = random.choice(list(CAPITALS.items()))
    if random.random() < 0.3:
        return f"Where is {city}?", f"{city} is in {country}."
    return f"What is the capital of {country}?", f"The capital of {country} is {city}."


def _sound(random: randoms.Random) -> Turn:
    animal, sound = random.choice(list(SOUNDS.items()))
    return f"What does a {animal} say?", f"A {animal} says {sound}."


def _several(random: randoms.Random) -> Turn:
    a, b, c = random.sample(ANIMALS, 3)
    return random.choice(("Name three animals.", "Tell me three animals.")), f"{a}, {b} and {c}."


def _story(random: randoms.Random) -> Turn:
    animal, place, find = (random.choice(part) for part in (ANIMALS, PLACES, FINDS))
    habit, friend = random.choice(HABITS), random.choice(NAMES)
    asked = random.choice((f"Tell me a story about a {animal}.", f"A story about a {animal}."))
    if random.random() < 0.3:
        asked = random.choice(("Tell me a story.", "Tell me a story, please."))
    told = (
        f"Once there was a {animal} that lived by the {place}. It liked to {habit}. "
        f"One day the {animal} found a {find} and gave it to {friend}. "
        f"{friend} was very happy, and they were friends ever after."
    )
    return asked, told


_KINDS: tuple[Callable[[randoms.Random], Turn], ...] = (
    _greeting, _self, _help, _thanks, _sum, _count, _repeat, _spell, _colour, _opposite, _capital,
    _sound, _several, _story,
)  # fmt: skip
_SHARES = (4, 3, 2, 4, 30, 10, 14, 10, 7, 7, 7, 4, 2, 9)

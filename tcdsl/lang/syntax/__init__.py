"""From text to syntax trees and back."""
